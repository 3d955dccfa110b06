"""The procedures that show groups, tables and settings (docs/reference/event_stream.md, "Help procedures").

They show Synapse Link and mirroring too, which the emulator has not: their columns are NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlserver_emulator.cdc.enabling.enable_database import database_id_of
from sqlserver_emulator.cdc.lsn import lsn_at, parse_position
from sqlserver_emulator.cdc.procedures.results import ResultColumn, result_set
from sqlserver_emulator.contract import Parameter, ProcedureCall
from sqlserver_emulator.event_stream.messages import stream_error
from sqlserver_emulator.event_stream.switches import shown_positions
from sqlserver_emulator.events import Event
from sqlserver_emulator.types import BIGINT, BIT, DATETIME, INT, LSN, NVARCHAR_4000, SYSNAME, TsqlType

Listing = tuple[ResultColumn, ...]

_GUID, _TINYINT = TsqlType("uniqueidentifier"), TsqlType("tinyint")
_GROUP_NAME = TsqlType("nvarchar", 140)
_ACTIVE = 4
_EVENT_STREAM = 1
_SCHEMES: Mapping[str, int] = {"None": 0, "StreamGroup": 1, "Table": 2, "Column": 3}
_JSON, _BINARY = 1, 2
_MAXTRANS, _POLL_SECONDS, _SCHEMA_VERSION = 500, 5, 1

_TABLE_COLUMNS: Listing = (
    ("table_group_id", _GUID),
    ("table_group_name", _GROUP_NAME),
    ("schema_name", SYSNAME),
    ("table_name", SYSNAME),
    ("table_id", _GUID),
    ("destination_location", NVARCHAR_4000),
    ("workspace_id", TsqlType("nvarchar", 247)),
    ("state", _TINYINT),
    ("table_object_id", INT),
    ("version", LSN),
    ("enable_lsn", LSN),
    ("disable_lsn", LSN),
    ("snapshot_phase", _TINYINT),
    ("snapshot_current_phase_time", DATETIME),
    ("snapshot_retry_count", INT),
    ("snapshot_start_time", DATETIME),
    ("snapshot_end_time", DATETIME),
    ("snapshot_row_count", BIGINT),
    ("include_old_values", BIT),
    ("include_all_columns", BIT),
    ("include_old_lob_values", BIT),
)
_FEED_COLUMNS: Listing = (
    ("table_group_id", _GUID),
    ("table_group_name", _GROUP_NAME),
    ("destination_location", TsqlType("nvarchar", 512)),
    ("destination_credential", SYSNAME),
    ("workspace_id", TsqlType("nvarchar", 247)),
    ("synapse_workgroup_name", TsqlType("nvarchar", 50)),
    ("schema_name", SYSNAME),
    ("table_name", SYSNAME),
    ("table_id", _GUID),
    ("table_object_id", INT),
    ("state", _TINYINT),
    ("version", LSN),
    ("snapshot_phase", _TINYINT),
    ("snapshot_current_phase_time", DATETIME),
    ("snapshot_retry_count", INT),
    ("snapshot_start_time", DATETIME),
    ("snapshot_end_time", DATETIME),
    ("snapshot_row_count", INT),
)
_GROUP_COLUMNS: Listing = (
    ("table_group_id", _GUID),
    ("table_group_name", _GROUP_NAME),
    ("destination_location", NVARCHAR_4000),
    ("destination_credential", SYSNAME),
    ("workspace_id", TsqlType("nvarchar", 247)),
    ("synapse_workgroup_name", TsqlType("nvarchar", 50)),
    ("enabled", BIT),
    ("destination_type", INT),
    ("max_message_size_bytes", INT),
    ("partition_scheme", _TINYINT),
    ("partition_column_name", SYSNAME),
    ("encoding", _TINYINT),
    ("streaming_dest_type", SYSNAME),
)
_SETTINGS_COLUMNS: Listing = (
    ("maxtrans", INT),
    ("seqno", LSN),
    ("schema_version", INT),
    ("pollinterval", INT),
    ("reseed_state", _TINYINT),
)
TABLE_PARAMETERS = (
    Parameter("@table_group_id", _GUID, None),
    Parameter("@table_id", _GUID, None),
    Parameter("@source_schema", SYSNAME, None),
    Parameter("@source_name", SYSNAME, None),
)


def help_table(call: ProcedureCall) -> Iterator[Event]:
    """Yield the streamed table of a name, or of the ids of its group and its own. Raises 23636 and 23621."""
    database_id, _ = _stream(call)
    named = (call.arguments["@source_schema"], call.arguments["@source_name"])
    ids = (call.arguments["@table_group_id"], call.arguments["@table_id"])
    if None in named and None in ids:
        raise stream_error(23621, "@source_name")
    given = [None if value is None else str(value) for value in (*named, *ids)]
    rows = call.engine.fetch_all(_TABLES, (database_id, *given))
    yield from result_set(_TABLE_COLUMNS, [_table_row(row) for row in rows])


def help_tables(call: ProcedureCall) -> Iterator[Event]:
    """Yield every streamed table. Raises 23636."""
    database_id, _ = _stream(call)
    rows = call.engine.fetch_all(_TABLES, (database_id, *[None] * 4))
    yield from result_set(_TABLE_COLUMNS, [_table_row(row) for row in rows])


def help_feed(call: ProcedureCall) -> Iterator[Event]:
    """Yield every streamed table with its group, in the older form. Raises 23636."""
    database_id, _ = _stream(call)
    credentials = {row[0]: row[3] for row in call.engine.fetch_all(_GROUPS, (database_id,))}
    rows = []
    for group_id, group, schema, table, table_id, location, object_id, *_ in call.engine.fetch_all(
        _TABLES, (database_id, *[None] * 4)
    ):
        known = (group_id, group, location, credentials[group_id], None, None, schema, table, table_id, object_id)
        rows.append((*known, _ACTIVE, *[None] * 7))
    yield from result_set(_FEED_COLUMNS, rows)


def help_groups(call: ProcedureCall) -> Iterator[Event]:
    """Yield every stream group. Raises 23636."""
    database_id, _ = _stream(call)
    rows = []
    for group_id, name, location, credential, size, scheme, column, is_binary, destination in call.engine.fetch_all(
        _GROUPS, (database_id,)
    ):
        encoding = _BINARY if is_binary else _JSON
        known = (True, _EVENT_STREAM, size, _SCHEMES[str(scheme)], column, encoding, destination)
        rows.append((group_id, name, location, credential, None, None, *known))
    yield from result_set(_GROUP_COLUMNS, rows)


def help_settings(call: ProcedureCall) -> Iterator[Event]:
    """Yield the settings of the log reader and how far it has published. Raises 23636."""
    _, position = _stream(call)
    yield from result_set(_SETTINGS_COLUMNS, [(_MAXTRANS, lsn_at(position), _SCHEMA_VERSION, _POLL_SECONDS, 0)])


def _stream(call: ProcedureCall) -> tuple[int, int]:
    """Return the id of the current database and the position that is shown as the end of what is published."""
    run, name = call.engine.fetch_all, call.engine.database
    if not call.engine.caller_is("db_owner"):
        raise stream_error(23624, name)
    database_id = database_id_of(run, name)
    for position in shown_positions(run, database_id):
        return database_id, position
    raise stream_error(23636, name)


def _table_row(row: tuple[object, ...]) -> tuple[object, ...]:
    *known, object_id, enabled_at, old_values, all_columns, old_lobs = row
    enabled = lsn_at(parse_position(str(enabled_at)))
    return (*known, None, _ACTIVE, object_id, None, enabled, *[None] * 7, old_values, all_columns, old_lobs)


_TABLES = """
SELECT g.group_id, g.name::text, s.name::text, o.name::text, t.table_id, g.destination_location,
       t.object_id, (t.enabled_at - d.stream_lsn_shift)::text, t.old_values, t.all_columns, t.old_lobs
FROM emulator.event_stream_tables t
JOIN emulator.event_stream_groups g ON g.database_id = t.database_id AND g.name = t.group_name
JOIN emulator.databases d ON d.database_id = t.database_id
JOIN emulator.objects o USING (object_id)
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
WHERE t.database_id = $1::int
  AND ($2::varchar IS NULL AND $4::uuid IS NULL
       OR lower(s.name) = lower($2::varchar) AND lower(o.name) = lower($3::varchar)
       OR g.group_id = $4::uuid AND t.table_id = $5::uuid)
ORDER BY g.name, s.name, o.name
"""
_GROUPS = """
SELECT group_id, name::text, destination_location, credential::text, message_bytes, scheme, column_name::text,
       is_binary, destination_type
FROM emulator.event_stream_groups WHERE database_id = $1::int ORDER BY name
"""
