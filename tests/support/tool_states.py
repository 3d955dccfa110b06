"""States of other tools as texts: recorded ones, and printers of the values that the parsers return."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from floodmark.core.imported import DebeziumOffset, SsisState
from floodmark.core.position import Lsn

TS = "2026-11-20T06:15:09.2514873"


def print_ssis(state: SsisState) -> str:
    """Return the state as the CDC Control Task writes it."""
    parts = [state.name.value]
    parts += [f"CS/{state.cs}"] if state.cs else []
    parts += [f"CE/{state.ce}"] if state.ce else []
    parts += [f"IR/{state.ir_start}/{state.ir_end or ''}"] if state.ir_start else []
    parts += [f"TS/{state.updated}"] if state.updated else []
    parts += [f"ER/{state.error}"] if state.error is not None else []
    return "/".join(parts) + "/"


def ssis_end(lsn: object) -> str:
    """A state after a package has applied a range of changes."""
    return f"TFEND/CS/{lsn}/TS/{TS}/"


def colons(lsn: Lsn) -> str:
    """An LSN as Debezium spells it."""
    digits = lsn.value.hex()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def partition(database: str) -> dict[str, str]:
    return {"server": "shop", "database": database} if database else {"server": "shop"}


def offset(commit: Lsn | None, **other: Any) -> dict[str, Any]:
    """After a change event that is not the last one of its transaction."""
    position = {"commit_lsn": colons(commit) if commit else None, "change_lsn": None, "event_serial_no": 1}
    return {"transaction_id": None} | position | other


def value_of(each: DebeziumOffset) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    if each.is_snapshot_running:
        flags |= {"snapshot": "INITIAL", "snapshot_completed": False}
    if each.is_incremental_running:
        flags["incremental_snapshot_collections"] = '[{"incremental_snapshot_collections_id":"shop.dbo.Orders"}]'
    return offset(each.commit_lsn, **flags)


def key_of(each: DebeziumOffset) -> list[Any]:
    return [each.connector, partition(each.database)]


def print_rest(*offsets: DebeziumOffset) -> str:
    """The answer of GET /connectors/NAME/offsets, which does not name the connector."""
    return json.dumps({"offsets": [{"partition": partition(e.database), "offset": value_of(e)} for e in offsets]})


def print_object(*offsets: DebeziumOffset) -> str:
    """A file of offsets as JSON: keys and values are texts."""
    return json.dumps({json.dumps(key_of(each)): json.dumps(value_of(each)) for each in offsets})


def print_lines(*offsets: DebeziumOffset) -> str:
    """The topic of offsets, by a consumer that prints the keys."""
    return "".join(f"{json.dumps(key_of(each))}\t{json.dumps(value_of(each))}\n" for each in offsets)


def airbyte_message(database: str, commit: Lsn, streams: Mapping[str, Any]) -> str:
    """A state message of type GLOBAL. streams: the state of each stream, by schema.table."""
    stated = [
        {
            "stream_descriptor": {"namespace": name.split(".")[0], "name": name.split(".")[1]},
            "stream_state": state,
        }
        for name, state in streams.items()
    ]
    shared = _airbyte_shared(database, commit)
    return json.dumps({"type": "GLOBAL", "global": {"shared_state": {"state": shared}, "stream_states": stated}})


def airbyte_settings(database: str, commit: Lsn, streams: Mapping[str, Any]) -> str:
    """Return what the settings of a connection show."""
    stated = [
        {"streamDescriptor": {"namespace": name.split(".")[0], "name": name.split(".")[1]}, "streamState": state}
        for name, state in streams.items()
    ]
    shared = {"state": _airbyte_shared(database, commit)}
    return json.dumps(
        {"stateType": "global", "connectionId": "7", "globalState": {"sharedState": shared, "streamStates": stated}}
    )


def airbyte_done(name: str) -> dict[str, Any]:
    """The state of a stream that follows the log."""
    return {"cursor_field": [], "stream_name": name, "stream_namespace": "dbo"}


def airbyte_loading(name: str) -> dict[str, Any]:
    """The state of a stream whose initial load has reached a key."""
    loading = {"state_type": "ordered_column", "ordered_col": "Id", "ordered_col_val": "4711", "version": 2}
    return loading | {"incremental_state": airbyte_done(name)}


def _airbyte_shared(database: str, commit: Lsn) -> dict[str, Any]:
    key = json.dumps([database, {"server": database, "database": database}])
    return {"mssql_cdc_offset": {key: json.dumps(offset(commit))}, "mssql_db_history": "", "is_compressed": False}
