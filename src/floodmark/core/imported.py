"""The states of other tools (SSIS, Debezium, Airbyte), read as positions that Floodmark continues from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from floodmark.core.errors import ConfigError, OperatorError
from floodmark.core.position import Lsn, Position
from floodmark.core.schema import TableName

# --------------------------------------------------------------------------------------------------------------------
# The position up to which another tool has loaded tables: what the states of all tools have in common.


@dataclass(frozen=True, slots=True)
class ImportedPosition:
    """The position of a tool in the log of one database."""

    tool: str
    after: Lsn
    """The watermark to set: the tool has applied every change up to it, and maybe later ones."""
    log_lsn: Lsn
    """A commit LSN that the tool has read from the log, so that the log of the same database has it."""
    tables: Mapping[tuple[str, str], str] | None = None
    """By the folded name of each table that the state lists, why its rows are not complete; "" where they are. None:
    the state is about every table."""

    def explain_refusal(self, table: TableName) -> str:
        """Return why the state is of no use for a table; "" where it is."""
        if self.tables is None:
            return ""
        return self.tables.get(table.folded, f"the state of {self.tool} does not list the table.")


ToolState: TypeAlias = "DebeziumOffsets | AirbyteState | SsisState"
"""The state of a tool, as it was read."""


def unreadable(tool: str, problem: str, hint: str) -> ConfigError:
    """Return the error about a text that is no state of a tool. No part of the text may be in it: it may have keys of
    rows."""
    return ConfigError(f"state of {tool}", problem, hint)


def parse_log_lsn(text: str) -> Lsn | None:
    """Return the LSN that a text spells, None where it spells none that has an LSN before it."""
    try:
        found = Lsn.parse(text)
        found.previous()
    except ValueError:
        return None
    return found


# --------------------------------------------------------------------------------------------------------------------
# The offsets of Debezium's SQL Server connector (docs/reference/imported_states.md, "Debezium").
#
# A change event has the commit LSN of its transaction. An offset is that of the last event that was delivered, so the
# transaction may have been delivered in part. It is read again as a whole: the watermark is the LSN before it.


DEBEZIUM = "Debezium"
_DEBEZIUM_FORM = (
    "Give the answer of GET /connectors/NAME/offsets, a JSON object of keys and offsets, or lines with a key and an "
    "offset each, as in Kafka Connect's topic of offsets."
)
_COLLECTIONS = "incremental_snapshot_collections"


@dataclass(frozen=True, slots=True)
class DebeziumOffset:
    """The offset of one connector in one database."""

    connector: str
    """Its name; "" where the state has none."""
    database: str
    """"" where the version of Debezium does not name it."""
    commit_lsn: Lsn | None
    """None where it has no position yet."""
    is_snapshot_running: bool = False
    is_incremental_running: bool = False
    """Whether an incremental snapshot of some tables is running."""

    @property
    def place(self) -> str:
        """Return the names of connector and database, as far as they are known."""
        return " in ".join(filter(None, (self.connector, self.database)))

    def position(self, tool: str) -> ImportedPosition:
        """Return the position. Raises OperatorError where rows may be missing below it."""
        if self.is_snapshot_running:
            raise OperatorError(
                f"state of {tool}",
                "its snapshot has begun and has not been completed.",
                "Let the snapshot complete, or drop its targets and let floodmark run load the tables.",
            )
        if self.is_incremental_running:
            raise OperatorError(
                f"state of {tool}",
                "an incremental snapshot is running, so rows of its tables may be missing.",
                "Let it complete, or stop it by a signal (stop-snapshot) and load its tables by floodmark run.",
            )
        if self.commit_lsn is None:
            raise OperatorError(
                f"state of {tool}", "it has no commit LSN.", "There is nothing to continue: floodmark run loads."
            )
        return ImportedPosition(tool, self.commit_lsn.previous(), self.commit_lsn)


@dataclass(frozen=True, slots=True)
class DebeziumOffsets:
    """The offsets of SQL Server connectors in a state."""

    offsets: tuple[DebeziumOffset, ...]
    connector: str | None = None
    """The one that counts; None for any."""
    tool: str = DEBEZIUM

    def position_in(self, database: str) -> ImportedPosition:
        """Return the position in the log of a database.

        Raises OperatorError unless the state says that the rows up to a position are complete.
        """
        return self._find(database).position(self.tool)

    def _find(self, database: str) -> DebeziumOffset:
        named = [each for each in self.offsets if self.connector in (None, each.connector)]
        found = [each for each in named if each.database.casefold() in ("", database.casefold())]
        if len(found) == 1:
            return found[0]
        if not found:
            there = ", ".join(sorted({each.place for each in self.offsets}))
            which = f" of connector {self.connector}" if self.connector else ""
            raise OperatorError(
                f"state of {self.tool}",
                f"it has no offset{which} in database {database}.",
                f"It has: {there}." if there else _DEBEZIUM_FORM,
            )
        raise OperatorError(
            f"state of {self.tool}",
            f"it has the offsets of {len(found)} connectors in database {database}.",
            f"Choose one (--connector): {', '.join(sorted(each.connector for each in found))}.",
        )


def parse_debezium_offsets(text: str, connector: str | None = None) -> DebeziumOffsets:
    """Return the offsets that a text has. Those of other kinds of connectors are left out. Raises ConfigError."""
    try:
        pairs = _pairs_of(_load(text))
    except ValueError:
        pairs = list(_lines(text))
    return DebeziumOffsets(parse_pairs(pairs, DEBEZIUM), connector)


def parse_pairs(pairs: Iterable[tuple[Any, Any]], tool: str) -> tuple[DebeziumOffset, ...]:
    """Return the offsets of keys and values, each as JSON or as a text with JSON. Of one key, the last one counts."""
    found: dict[tuple[str, str], DebeziumOffset] = {}
    for key, value in pairs:
        offset = _load_inner(value, tool)
        if offset is not None and not (isinstance(offset, dict) and "commit_lsn" in offset):
            continue
        place = _partition(_load_inner(key, tool), tool)
        if offset is None:
            found.pop(place, None)  # the offsets of the connector were reset
        else:
            found[place] = _offset(*place, offset, tool)
    if not found:
        raise unreadable(tool, "there is no offset of a SQL Server connector in the text.", _DEBEZIUM_FORM)
    return tuple(found.values())


def _partition(key: Any, tool: str) -> tuple[str, str]:
    """Return the connector and the database of a key, which is ["connector", {"server": …, "database": …}]."""
    name, partition = key if isinstance(key, list) and len(key) == 2 else ("", key)
    if not isinstance(partition, dict) or not isinstance(name, str):
        raise unreadable(tool, "a key of an offset is not that of a connector.", _DEBEZIUM_FORM)
    return name, str(partition.get("database") or "")


def _offset(connector: str, database: str, offset: dict[str, Any], tool: str) -> DebeziumOffset:
    text = offset["commit_lsn"]
    lsn = None
    if text not in (None, "NULL"):
        lsn = parse_log_lsn(text) if isinstance(text, str) else None
        if lsn is None:
            raise unreadable(tool, "commit_lsn is not an LSN.", _DEBEZIUM_FORM)
    is_complete = offset.get("snapshot_completed") is True
    return DebeziumOffset(
        connector,
        database,
        lsn,
        is_snapshot_running=offset.get("snapshot") not in (None, False, "false") and not is_complete,
        is_incremental_running=offset.get(_COLLECTIONS) is not None,
    )


def _pairs_of(document: Any) -> list[tuple[Any, Any]]:
    """Return the keys and offsets of the answer of Kafka Connect's REST interface, or of an object of both."""
    if not isinstance(document, dict):
        raise unreadable(DEBEZIUM, "the JSON is not an object.", _DEBEZIUM_FORM)
    listed = document.get("offsets")
    if not isinstance(listed, list):
        return list(document.items())
    if not all(isinstance(each, dict) and {"partition", "offset"} <= each.keys() for each in listed):
        raise unreadable(DEBEZIUM, "an entry of offsets has no partition or no offset.", _DEBEZIUM_FORM)
    return [(each["partition"], each["offset"]) for each in listed]


def _lines(text: str) -> Iterator[tuple[Any, Any]]:
    for line in filter(str.strip, text.splitlines()):
        decoder, stripped = json.JSONDecoder(), line.strip()
        try:
            key, end = decoder.raw_decode(stripped)
            yield key, _load(stripped[end:])
        except (ValueError, RecursionError):
            raise unreadable(
                DEBEZIUM, "the text is not JSON, nor lines of a key and an offset in JSON.", _DEBEZIUM_FORM
            ) from None


def _load_inner(value: Any, tool: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return _load(value)
    except ValueError:
        raise unreadable(tool, "a key or an offset is a text that is not JSON.", _DEBEZIUM_FORM) from None


def _load(text: str) -> Any:
    """Return the JSON of a text. Raises ValueError, also for one that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


# --------------------------------------------------------------------------------------------------------------------
# The state of Airbyte's SQL Server source with CDC (docs/reference/imported_states.md, "Airbyte").
#
# It has an offset of Debezium for the whole connection, and a state for each stream, which shows whether the initial
# load of the table has ended.


AIRBYTE = "Airbyte"
_OFFSET = "mssql_cdc_offset"
_AIRBYTE_FORM = (
    "Give the state of the connection as JSON: what the settings of the connection show, or a state message of type "
    "GLOBAL. Older forms are not supported."
)
_LOADING = "Airbyte's initial load of the table has not ended. Let a sync run to its end, and import its state."


@dataclass(frozen=True, slots=True)
class AirbyteState:
    """The state of a connection of Airbyte."""

    offsets: DebeziumOffsets
    streams: Mapping[tuple[str, str], str]
    """By the folded name of each table, why its rows are not complete; "" where they are."""

    def position_in(self, database: str) -> ImportedPosition:
        """Return the position in the log of a database.

        Raises OperatorError unless the state says that the rows up to a position are complete.
        """
        return replace(self.offsets.position_in(database), tables=self.streams)


def parse_airbyte_state(text: str) -> AirbyteState:
    """Return the state that a text spells. Raises ConfigError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise unreadable(AIRBYTE, "the text is not JSON.", _AIRBYTE_FORM) from None
    found = [each[_OFFSET] for each in _objects(document) if _OFFSET in each]
    if len(found) != 1 or not isinstance(found[0], dict):
        count = "no" if not found else "not one"
        raise unreadable(AIRBYTE, f"the JSON has {count} {_OFFSET}.", _AIRBYTE_FORM)
    offsets = DebeziumOffsets(parse_pairs(found[0].items(), AIRBYTE), tool=AIRBYTE)
    streams = dict(_streams(document))
    if not streams:
        raise unreadable(AIRBYTE, "the JSON lists no stream.", _AIRBYTE_FORM)
    return AirbyteState(offsets, streams)


def _streams(document: Any) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the streams. Messages spell their keys with underscores, Airbyte's own interface in camel case."""
    for each in _objects(document):
        descriptor = each.get("stream_descriptor", each.get("streamDescriptor"))
        if not isinstance(descriptor, dict):
            continue
        name, namespace = descriptor.get("name"), descriptor.get("namespace")
        if not isinstance(name, str) or not isinstance(namespace, str):
            raise unreadable(
                AIRBYTE, "a stream has no name or no namespace, which is the schema of its table.", _AIRBYTE_FORM
            )
        state = each.get("stream_state", each.get("streamState"))
        yield TableName(namespace, name).folded, "" if _is_complete(state) else _LOADING


def _is_complete(state: Any) -> bool:
    """Return whether a stream follows the log: a state of an initial load has a type, one without any is empty."""
    return isinstance(state, dict) and bool(state) and state.get("state_type") is None


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a JSON document."""
    waiting = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


# --------------------------------------------------------------------------------------------------------------------
# The outcome of an import for one table.


@dataclass(frozen=True, slots=True)
class TableImport:
    """The outcome for one table: the watermark that was set, or why none was."""

    source: TableName
    target: TableName
    after: Position
    """The position of the state. It is the watermark now, unless the table was refused."""
    verdict: str = ""
    """The verdict on the position at the source; "" where it was not asked for."""
    window_id: int | None = None
    """The window that records the import; None in a dry run, and for a refused table."""
    refusal: str = ""
    """Why the table was refused; "" where it was not."""
    hint: str = ""
    """What to do about the refusal."""


# --------------------------------------------------------------------------------------------------------------------
# The CDC state of SSIS, as its CDC Control Task keeps it (docs/reference/imported_states.md, "SSIS").


SSIS = "SSIS"
_LSN = r"0[xX][0-9A-Fa-f]{20}"
_STATE = re.compile(
    rf"(?P<name>[A-Z]{{0,16}})(?:/CS/(?P<cs>{_LSN}))?(?:/CE/(?P<ce>{_LSN}))?"
    rf"(?:/IR/(?P<ir_start>{_LSN})/(?P<ir_end>{_LSN})?)?(?:/TS/(?P<updated>[^/]+))?(?:/ER/(?P<error>.*?))?/?",
    re.DOTALL,
)
_SSIS_FORM = (
    "Give the text of one row of its state table alone, such as TFEND/CS/0x0000025B000001BC0003/TS/"
    "2011-07-17T12:05:58.1001145/"
)


class StateName(Enum):
    """The state names of SSIS."""

    INITIAL = ""
    ILSTART = "ILSTART"
    ILEND = "ILEND"
    ILUPDATE = "ILUPDATE"
    TFSTART = "TFSTART"
    TFEND = "TFEND"
    TFREDO = "TFREDO"
    ERROR = "ERROR"


_UNFINISHED = "Let the package that applies changes run to its end (Mark processed range), so that the state is TFEND."
_REFUSED = {
    StateName.INITIAL: ("no package has run yet.", "There is nothing to continue: floodmark run loads the tables."),
    StateName.ILSTART: (
        "its initial load has begun and has not ended.",
        "Let it run to its end (Mark initial load end), or drop its targets and let floodmark run load the tables.",
    ),
    StateName.ILUPDATE: ("the changes of its initial load are being applied.", _UNFINISHED),
    StateName.TFSTART: ("a range of changes is being applied, or was left unfinished.", _UNFINISHED),
    StateName.TFREDO: ("a range of changes is being applied again after a failure.", _UNFINISHED),
    StateName.ERROR: ("its last operation failed.", f"Correct what failed. {_UNFINISHED}"),
}


@dataclass(frozen=True, slots=True)
class SsisState:
    """A CDC state of SSIS."""

    name: StateName
    cs: Lsn | None = None
    """The last LSN of the last range that was applied."""
    ce: Lsn | None = None
    """The last LSN of the range that is being applied."""
    ir_start: Lsn | None = None
    """The newest LSN before the initial load began."""
    ir_end: Lsn | None = None
    """The LSN of the first change after the initial load had ended."""
    updated: str = ""
    """The time of the last update, as it is spelled."""
    error: str | None = None
    """The text of an error; None for none."""

    def position_in(self, database: str) -> ImportedPosition:
        """Return the position. The state does not name its database. Raises OperatorError, naming the state."""
        cause, hint = _REFUSED.get(self.name, ("", ""))
        if self.error is not None or self.ce is not None:
            cause, hint = cause or "its last operation did not end well.", hint or _UNFINISHED
        if cause:
            raise OperatorError(f"state of {SSIS}", f"{self.name.value or '(initial)'}: {cause}", hint)
        found = self.cs if self.name is StateName.TFEND else self.ir_start
        if found is None:
            component = "CS" if self.name is StateName.TFEND else "IR"
            raise unreadable(SSIS, f"{self.name.value} without {component}.", _SSIS_FORM)
        return ImportedPosition(SSIS, found, found)


def parse_ssis_state(text: str) -> SsisState:
    """Return the state that a text spells. Raises ConfigError."""
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise unreadable(SSIS, "the text is not a CDC state.", _SSIS_FORM)
    try:
        name = StateName(match["name"])
    except ValueError:
        known = ", ".join(each.value for each in StateName if each.value)
        raise unreadable(SSIS, f"{match['name']} is not a state name.", f"The state names are {known}.") from None
    cs, ce, ir_start, ir_end = (_lsn(match[part]) for part in ("cs", "ce", "ir_start", "ir_end"))
    return SsisState(name, cs, ce, ir_start, ir_end, match["updated"] or "", match["error"])


def _lsn(text: str | None) -> Lsn | None:
    if text is None:
        return None
    found = parse_log_lsn(text)
    if found is None:
        raise unreadable(SSIS, "an LSN in the state is not a position in a log.", _SSIS_FORM)
    return found
