"""The procedures ``sys.sp_*_event_stream*``: arguments, rights and the entries in the catalog.

Both generations of names; the newer one has ``change_`` before ``event_stream``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from sqlserver_emulator.cdc.enabling.enable_database import database_id_of, find_database
from sqlserver_emulator.cdc.enabling.source import SourceTable, find_table
from sqlserver_emulator.cdc.log.slots import create_slot
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.postgres import server_conninfo
from sqlserver_emulator.contract import Parameter, ProcedureCall, ProcedureRegistry, SystemProcedure
from sqlserver_emulator.engine.names import quote
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.event_stream import help_procedures
from sqlserver_emulator.event_stream.destination import Destination
from sqlserver_emulator.event_stream.encoding import Generation
from sqlserver_emulator.event_stream.installation import disable_stream
from sqlserver_emulator.event_stream.messages import deprecation, stream_error, wrapped
from sqlserver_emulator.event_stream.switches import read_generation
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import BIT, INT, NVARCHAR_4000, SYSNAME, TsqlType

_LEAST_KB, _MOST_KB = 128, 1024
_SCHEMES = ("None", "StreamGroup", "Table", "Column")
_ENCODINGS = ("JSON", "Binary")
_AMQP = "AzureEventHubsAmqp"
_DESTINATIONS = ("AzureEventHubsApacheKafka", "AzureEventHubs", _AMQP)
_LOCATION = re.compile(r"([a-z0-9-]+)\.servicebus\.windows\.net(?::\d{1,5})?/([A-Za-z0-9._-]+)", re.IGNORECASE)
_GROUP = Parameter("@stream_group_name", SYSNAME)
_OBJECT = Parameter("@object_name", TsqlType("nvarchar", 512))


def _enable(call: ProcedureCall, run: Run, database_id: int) -> None:
    name = call.engine.database
    if run("SELECT 1 FROM emulator.databases WHERE database_id = $1::int AND is_system", (database_id,)):
        raise stream_error(23648, name)
    ((has_preview, recovery),) = run(_OPTIONS, (database_id,))
    if not has_preview:
        raise stream_error(23623, name)
    if recovery != _FULL:
        raise stream_error(23634, f"The recovery model of the database '{name}', which has to be FULL,")
    if find_database(run, name) is not None:
        raise stream_error(23650, name)
    if _slot_of(run, database_id) is not None:
        raise stream_error(23653, name)
    # First, as this transaction has written nothing yet: a new slot may wait for every transaction that has.
    slot = create_slot(run, server_conninfo(run), database_id)
    options = "publish = 'insert, update, delete', publish_generated_columns = stored"
    run(f"CREATE PUBLICATION {quote(slot)} WITH ({options})", ())
    run(
        "INSERT INTO emulator.event_stream_databases VALUES ($1::int, $2::text, pg_current_wal_insert_lsn())",
        (database_id, slot),
    )
    run("UPDATE emulator.databases SET is_event_stream_enabled = true WHERE database_id = $1::int", (database_id,))


def _disable(call: ProcedureCall, run: Run, database_id: int) -> None:
    disable_stream(run, database_id, _required_slot(call, run, database_id))


def _create_group(call: ProcedureCall, run: Run, database_id: int, *, takes_amqp: bool) -> None:
    _required_slot(call, run, database_id)
    name, location = _text(call, "@stream_group_name"), _text(call, "@destination_location")
    destination = _choice(call, "@destination_type", _DESTINATIONS)
    if destination == _AMQP and not takes_amqp:
        raise NotSupportedByEmulatorError(f"the destination type {_AMQP} with --event-hubs-broker")
    if run(
        "SELECT 1 FROM emulator.event_stream_groups WHERE database_id = $1::int AND lower(name) = lower($2::varchar)",
        (database_id, name),
    ):
        raise stream_error(23619, name)
    credential = _existing_credential(call, run, database_id)
    found = _LOCATION.fullmatch(location)
    if found is None:
        raise stream_error(23642, location)
    size = call.arguments["@max_message_size_kb"]
    if not isinstance(size, int) or not _LEAST_KB <= size <= _MOST_KB:
        raise stream_error(23666, _LEAST_KB, _MOST_KB)
    scheme, column = _choice(call, "@partition_key_scheme", _SCHEMES), call.arguments["@partition_key_column_name"]
    if scheme == "Column" and not column:
        raise stream_error(23617, "@partition_key_column_name")
    if scheme != "Column" and column:
        raise stream_error(23616, "@partition_key_column_name")
    is_binary = _choice(call, "@encoding", _ENCODINGS) == "Binary"
    if is_binary and read_generation(run, database_id) is Generation.G1:
        raise stream_error(23634, "@encoding = 'Binary' in the first generation of messages")
    run(
        "INSERT INTO emulator.event_stream_groups VALUES ($1::int, $2::varchar, $3::text, $4::int, $5::text,"
        " $6::varchar, $7::boolean, $8::varchar, $9::text, $10::text)",
        (
            database_id,
            name,
            f"{found[1].lower()}/{found[2]}",
            size << 10,
            scheme,
            column,
            is_binary,
            credential,
            location,
            destination,
        ),
    )


def _drop_group(call: ProcedureCall, run: Run, database_id: int) -> None:
    _required_slot(call, run, database_id)
    name = _existing_group(call, run, database_id)
    if run(
        "SELECT 1 FROM emulator.event_stream_tables WHERE database_id = $1::int AND group_name = $2::varchar",
        (database_id, name),
    ):
        raise stream_error(23634, f"Dropping the stream group '{name}', which has tables,")
    run(
        "DELETE FROM emulator.event_stream_groups WHERE database_id = $1::int AND name = $2::varchar",
        (database_id, name),
    )


def _add_object(call: ProcedureCall, run: Run, database_id: int) -> None:
    slot = _required_slot(call, run, database_id)
    group, table = _existing_group(call, run, database_id), _existing_table(call, run)
    old_values, old_lobs = (bool(call.arguments[name]) for name in ("@include_old_values", "@include_old_lob_values"))
    if old_lobs and not old_values:
        raise stream_error(23641)
    if run("SELECT 1 FROM emulator.event_stream_tables WHERE object_id = $1::int", (table.object_id,)):
        raise stream_error(23643, f"{table.schema}.{table.name}")
    # No transaction that has written to the table is open, so each commits either below the place that is noted, or
    # above it with whole old rows.
    run(f"LOCK TABLE {table.relation} IN SHARE ROW EXCLUSIVE MODE", ())
    run(f"ALTER TABLE {table.relation} REPLICA IDENTITY FULL", ())
    run(f"ALTER PUBLICATION {quote(slot)} ADD TABLE {table.relation}", ())
    run(
        "INSERT INTO emulator.event_stream_tables (object_id, database_id, group_name, all_columns, old_values,"
        " old_lobs, enabled_at) VALUES ($1::int, $2::int, $3::varchar, $4::boolean, $5::boolean, $6::boolean,"
        " pg_current_wal_insert_lsn())",
        (table.object_id, database_id, group, bool(call.arguments["@include_all_columns"]), old_values, old_lobs),
    )
    run("UPDATE emulator.objects SET is_streamed = true WHERE object_id = $1::int", (table.object_id,))


def _remove_object(call: ProcedureCall, run: Run, database_id: int) -> None:
    slot = _required_slot(call, run, database_id)
    group, table = _existing_group(call, run, database_id), _existing_table(call, run)
    removed = run(
        "DELETE FROM emulator.event_stream_tables WHERE object_id = $1::int AND group_name = $2::varchar"
        " RETURNING object_id",
        (table.object_id, group),
    )
    if not removed:
        raise stream_error(23644, f"{table.schema}.{table.name}", group)
    run("UPDATE emulator.objects SET is_streamed = false WHERE object_id = $1::int", (table.object_id,))
    run(f"ALTER PUBLICATION {quote(slot)} DROP TABLE {table.relation}", ())
    run(f"ALTER TABLE {table.relation} REPLICA IDENTITY DEFAULT", ())


# -- parts of the checks --------------------------------------------------------------------------------------------


def _text(call: ProcedureCall, name: str) -> str:
    value = call.arguments[name]
    if not value:
        raise stream_error(23621, name)
    return str(value)


def _choice(call: ProcedureCall, name: str, choices: tuple[str, ...]) -> str:
    value = _text(call, name)
    found = next((choice for choice in choices if choice.lower() == value.lower()), None)
    if found is None:
        raise stream_error(23618, value, name, ", ".join(choices))
    return found


def _slot_of(run: Run, database_id: int) -> str | None:
    rows = run(
        "SELECT slot_name FROM emulator.event_stream_databases WHERE database_id = $1::int FOR UPDATE", (database_id,)
    )
    return str(rows[0][0]) if rows else None


def _required_slot(call: ProcedureCall, run: Run, database_id: int) -> str:
    slot = _slot_of(run, database_id)
    if slot is None:
        raise stream_error(23636, call.engine.database)
    return slot


def _existing_group(call: ProcedureCall, run: Run, database_id: int) -> str:
    name = _text(call, "@stream_group_name")
    rows = run(
        "SELECT name::text FROM emulator.event_stream_groups"
        " WHERE database_id = $1::int AND lower(name) = lower($2::varchar)",
        (database_id, name),
    )
    if not rows:
        raise stream_error(23620, "stream group", name)
    return str(rows[0][0])


def _existing_credential(call: ProcedureCall, run: Run, database_id: int) -> str:
    name = _text(call, "@destination_credential")
    rows = run(
        "SELECT name::text FROM emulator.credentials WHERE database_id = $1::int AND lower(name) = lower($2::varchar)",
        (database_id, name),
    )
    if not rows:
        raise stream_error(23620, "credential", name)
    return str(rows[0][0])


def _existing_table(call: ProcedureCall, run: Run) -> SourceTable:
    name = _text(call, "@object_name")
    schema, point, table = name.replace("[", "").replace("]", "").partition(".")
    if not (schema and point and table) or "." in table:
        raise stream_error(23628, name)
    found = find_table(run, call.engine.database, schema, table)
    if found is None:
        raise stream_error(23620, "table", name)
    return found


# -- the registry ---------------------------------------------------------------------------------------------------

_Work = Callable[[ProcedureCall, Run, int], None]
_CREATE_GROUP = "sp_create_{}event_stream_group"
_WORK: dict[str, tuple[_Work, tuple[Parameter, ...]]] = {
    "sp_enable_{}event_stream": (_enable, ()),
    "sp_disable_{}event_stream": (_disable, ()),
    _CREATE_GROUP: (
        partial(_create_group, takes_amqp=True),
        (
            _GROUP,
            Parameter("@destination_type", SYSNAME),
            Parameter("@destination_location", NVARCHAR_4000),
            Parameter("@destination_credential", SYSNAME),
            Parameter("@max_message_size_kb", INT, 256),
            Parameter("@partition_key_scheme", SYSNAME, "None"),
            Parameter("@partition_key_column_name", SYSNAME, None),
            Parameter("@encoding", SYSNAME, "JSON"),
        ),
    ),
    "sp_drop_{}event_stream_group": (_drop_group, (_GROUP,)),
    "sp_add_object_to_{}event_stream_group": (
        _add_object,
        (
            _GROUP,
            _OBJECT,
            Parameter("@include_all_columns", BIT, True),
            Parameter("@include_old_values", BIT, True),
            Parameter("@include_old_lob_values", BIT, False),
        ),
    ),
    "sp_remove_object_from_{}event_stream_group": (_remove_object, (_GROUP, _OBJECT)),
}


def _procedure(name: str, newer: str, work: _Work, parameters: tuple[Parameter, ...]) -> SystemProcedure:
    def run_checked(call: ProcedureCall) -> Iterator[Event]:
        run = call.engine.fetch_all
        if name != newer:
            yield deprecation(name, newer)
        try:
            if not call.engine.caller_is("db_owner"):
                raise stream_error(23624, call.engine.database)
            with call.engine.atomic():
                work(call, run, database_id_of(run, call.engine.database))
        except SqlServerError as error:
            call.return_code = 1
            raise wrapped(error) from error

    return SystemProcedure(name, parameters, run_checked)


def _by_both_names(template: str, work: _Work, parameters: tuple[Parameter, ...]) -> ProcedureRegistry:
    names = (template.format(change) for change in ("", "change_"))
    return {name: _procedure(name, template.format("change_"), work, parameters) for name in names}


_PROCEDURES: ProcedureRegistry = {
    **{
        name: procedure
        for template, (work, parameters) in _WORK.items()
        for name, procedure in _by_both_names(template, work, parameters).items()
    },
    **{
        name: SystemProcedure(name, parameters, listing)
        for name, parameters, listing in (
            ("sp_help_change_feed_table", help_procedures.TABLE_PARAMETERS, help_procedures.help_table),
            ("sp_help_change_feed", (), help_procedures.help_feed),
            ("sp_help_change_feed_table_groups", (), help_procedures.help_groups),
            ("sp_help_change_event_stream_groups", (), help_procedures.help_groups),
            ("sp_help_change_event_stream_tables", (), help_procedures.help_tables),
            ("sp_help_change_feed_settings", (), help_procedures.help_settings),
        )
    },
}


def procedures_for(destination: Destination) -> ProcedureRegistry:
    """Return the procedures of a server whose messages go to a destination."""
    _, parameters = _WORK[_CREATE_GROUP]
    create_group = partial(_create_group, takes_amqp=destination.takes_amqp)
    return {**_PROCEDURES, **_by_both_names(_CREATE_GROUP, create_group, parameters)}


_FULL = 1
_OPTIONS = "SELECT has_preview_features, recovery_model::int FROM emulator.databases WHERE database_id = $1::int"
