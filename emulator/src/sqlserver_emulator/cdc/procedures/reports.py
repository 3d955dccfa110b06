"""``sp_cdc_help_change_data_capture``, ``sp_cdc_get_captured_columns``, ``sp_cdc_get_ddl_history``.

See docs/reference/sqlserver_cdc.md, "Reports". They show an instance to who may read it: db_owner, or SELECT on the
captured columns and the gating role.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlserver_emulator.cdc.enabling.source import find_table
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.messages import cdc_error
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.procedures.results import ResultColumn, require_cdc, result_set, sql_of, text_argument
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.engine.names import bracketed, postgres_schema, quote
from sqlserver_emulator.events import Event
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.record import FLOAT, TEMPORAL, Declared, SystemType
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.types import BIT, DATETIME, INT, LSN, NVARCHAR_MAX, SMALLINT, SYSNAME, TsqlType

_HELP_COLUMNS: tuple[ResultColumn, ...] = (
    ("source_schema", SYSNAME),
    ("source_table", SYSNAME),
    ("capture_instance", SYSNAME),
    ("object_id", INT),
    ("source_object_id", INT),
    ("start_lsn", LSN),
    ("end_lsn", LSN),
    ("supports_net_changes", BIT),
    ("has_drop_pending", BIT),
    ("role_name", SYSNAME),
    ("index_name", SYSNAME),
    ("filegroup_name", SYSNAME),
    ("create_date", DATETIME),
    ("index_column_list", NVARCHAR_MAX),
    ("captured_column_list", NVARCHAR_MAX),
)
_CAPTURED_COLUMNS: tuple[ResultColumn, ...] = (
    ("source_schema", SYSNAME),
    ("source_table", SYSNAME),
    ("capture_instance", SYSNAME),
    ("column_name", SYSNAME),
    ("column_id", INT),
    ("column_ordinal", INT),
    ("data_type", SYSNAME),
    ("character_maximum_length", INT),
    ("numeric_precision", TsqlType("tinyint")),
    ("numeric_precision_radix", SMALLINT),
    ("numeric_scale", INT),
    ("datetime_precision", SMALLINT),
)
_HISTORY_COLUMNS: tuple[ResultColumn, ...] = (
    ("source_schema", SYSNAME),
    ("source_table", SYSNAME),
    ("capture_instance", SYSNAME),
    ("required_column_update", BIT),
    ("ddl_command", NVARCHAR_MAX),
    ("ddl_lsn", LSN),
    ("ddl_time", DATETIME),
)


def _help(call: ProcedureCall) -> Iterator[Event]:
    schema, name = text_argument(call, "@source_schema"), text_argument(call, "@source_name")
    # docs/reference/sqlserver_cdc.md, "Reports": both or neither.
    if bool(schema) != bool(name):
        raise cdc_error(22972)
    database = require_cdc(call)
    run = sql_of(call)
    source: int | None = None
    if schema and name:
        table = find_table(run, database.name, schema, name)
        if table is None:
            raise cdc_error(22931, schema, name)
        if not table.is_tracked:
            raise cdc_error(22985, table.schema, table.name)
        source = table.object_id
    rows = read_visible_instances(run, database, source_object_id=source)
    shown: list[tuple[object, ...]] = []
    for row in rows:
        keys, captured = (_list_names(run(database.sql(sql), (row[3],))) for sql in _NAME_LISTS)
        # The real procedure keeps the key of the row before where an instance has none.
        shown.append((*row, shown[-1][-2] if keys is None and shown else keys, captured))
    yield from result_set(_HELP_COLUMNS, shown)


def _list_names(rows: list[tuple[Any, ...]]) -> str | None:
    return ", ".join(bracketed(name) for (name,) in rows) if rows else None


def _captured_columns(call: ProcedureCall) -> Iterator[Event]:
    database, instance = _readable_instance(call)
    rows = sql_of(call)(database.sql(_COLUMNS), (instance[3],))
    described = [
        (*instance[:3], name, column_id, ordinal, type_name, *_facets(declared, length, precision, scale))
        for name, column_id, ordinal, type_name, declared, length, precision, scale in rows
    ]
    yield from result_set(_CAPTURED_COLUMNS, described)


def _facets(name: str, length: int, precision: int, scale: int) -> tuple[int | None, ...]:
    """character_maximum_length, numeric_precision, its radix, numeric_scale, datetime_precision as INFORMATION_SCHEMA
    gives them."""
    record = BY_NAME.get(name)
    if record is None:
        return length or None, None, None, None, None
    if record.family == TEMPORAL:
        digits = scale if record.declared is Declared.SCALE else record.facets.scale
        return None, None, None, None, digits
    if record.family == FLOAT:
        return None, precision or record.facets.precision, record.odbc.radix, None, None
    if record.is_number:
        of_type = record.facets.precision, record.facets.scale
        digits, after_point = (precision, scale) if record.declared is Declared.PRECISION_SCALE else of_type
        return None, digits, record.odbc.radix, after_point, None
    return _longest(record) or length or None, None, None, None, None


def _longest(record: SystemType) -> int:
    """Return the length of a type that has none of its own: -1 for xml, as for the (max) types."""
    if record.is_legacy_lob:
        return record.odbc.precision
    return record.facets.max_length if record.wire.packing is Packing.XML else 0


def _ddl_history(call: ProcedureCall) -> Iterator[Event]:
    database, instance = _readable_instance(call)
    rows = sql_of(call)(database.sql(_HISTORY), (instance[3],))
    yield from result_set(_HISTORY_COLUMNS, [(*instance[:3], *row) for row in rows])


def _readable_instance(call: ProcedureCall) -> tuple[CdcDatabase, tuple[Any, ...]]:
    """Return the instance that the caller names. Raises 22981 also when the caller may not know of it."""
    database = require_cdc(call)
    name = text_argument(call, "@capture_instance")
    # An instance that the caller may not know of is as good as unknown.
    rows = read_visible_instances(sql_of(call), database, instance=name) if name else []
    if not rows:
        raise cdc_error(22981)
    return database, rows[0]


def read_visible_instances(
    run: Run, database: CdcDatabase, *, source_object_id: int | None = None, instance: str | None = None
) -> list[tuple[Any, ...]]:
    """Return the instances that the caller may read: of one table, with one name, or all; columns as in the help."""
    sql = database.sql(_INSTANCES).replace(":sys.", f"{quote(postgres_schema(database.name, 'sys'))}.")
    return run(sql, (source_object_id, instance))


_INSTANCES = """
SELECT s.name::text, o.name::text, t.capture_instance::text, t.object_id, t.source_object_id, t.start_lsn, t.end_lsn,
       t.supports_net_changes, t.has_drop_pending, t.role_name::text, t.index_name::text, t.filegroup_name::text,
       t.create_date
FROM :cdc.change_tables t
JOIN emulator.objects o ON o.object_id = t.source_object_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
WHERE ($1::int IS NULL OR t.source_object_id = $1::int)
  AND ($2::varchar IS NULL OR lower(t.capture_instance) = lower($2::varchar))
  AND :sys.cdc_may_read(t.object_id)
ORDER BY s.name, o.name, t.create_date, t.object_id
"""
_NAME_LISTS = (
    "SELECT column_name::text FROM :cdc.index_columns WHERE object_id = $1::int ORDER BY index_ordinal",
    "SELECT column_name::text FROM :cdc.captured_columns WHERE object_id = $1::int ORDER BY column_ordinal",
)
"""The columns of the key, and the captured columns."""
# The captured columns follow the five system columns of a change table, hence the ordinal + 5.
_COLUMNS = """
SELECT k.column_name::text, k.column_id, k.column_ordinal, k.column_type::text, c.type_name::text, c.length,
       c.precision::int, c.scale::int
FROM :cdc.captured_columns k
JOIN emulator.columns c ON c.object_id = k.object_id AND c.column_id = k.column_ordinal + 5
WHERE k.object_id = $1::int ORDER BY k.column_ordinal
"""
_HISTORY = """
SELECT required_column_update, ddl_command, ddl_lsn, ddl_time FROM :cdc.ddl_history
WHERE object_id = $1::int ORDER BY ddl_lsn
"""

REPORTS = (
    SystemProcedure(
        "sp_cdc_help_change_data_capture",
        (Parameter("@source_schema", SYSNAME, None), Parameter("@source_name", SYSNAME, None)),
        _help,
    ),
    SystemProcedure("sp_cdc_get_captured_columns", (Parameter("@capture_instance", SYSNAME),), _captured_columns),
    SystemProcedure("sp_cdc_get_ddl_history", (Parameter("@capture_instance", SYSNAME),), _ddl_history),
)
