"""``sp_cdc_enable_table``: check what is asked for, then make a capture instance.

Everything happens in the caller's transaction with the source table locked against writers, so the instance's first
LSN is exact: no change of the table can commit between it and the end of the transaction. Jobs are ``jobs``', disabling
is ``disable``'s.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlserver_emulator.cdc.enabling.enumeration import KeyColumn, create_functions, create_view
from sqlserver_emulator.cdc.enabling.source import SourceColumn, SourceIndex, SourceTable
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.lsn import parse_position, position_text
from sqlserver_emulator.cdc.messages import cdc_error
from sqlserver_emulator.cdc.metadata import (
    CDC_SCHEMA,
    CHANGE_ORDER,
    CHANGE_TABLE_END,
    CHANGE_TABLE_START,
    Declared,
    Home,
    Run,
    create_table,
    register_clustered_index,
)
from sqlserver_emulator.engine.names import postgres_name, qualified, quote
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.types import TsqlType

# docs/reference/sqlserver_cdc.md, "Enabling a table": errors 22927 and 22865. 22925 has the limit of columns.
MAX_INSTANCE_NAME = 100
MAX_COLUMNS = 1024
MAX_KEY_COLUMNS = 14
# Error 22975 names these five; `__$command_id` is not among them.
_RESERVED = frozenset(c.name for c in CHANGE_TABLE_START)
_FILEGROUP = "SELECT 1 FROM emulator_sys.filegroups WHERE database = $1::int AND lower(name) = lower($2::varchar)"


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """The arguments of sp_cdc_enable_table after their defaults; ``role_name`` None: no gating role."""

    capture_instance: str | None
    supports_net_changes: bool | None
    role_name: str | None
    index_name: str | None
    captured_column_list: str | None
    filegroup_name: str | None
    allow_partition_switch: bool


@dataclass(frozen=True, slots=True)
class InstancePlan:
    """A capture instance that may be made. ``index``: what identifies a row, if anything does."""

    name: str
    columns: tuple[SourceColumn, ...]
    index: SourceIndex | None
    supports_net_changes: bool
    role_name: str | None
    filegroup_name: str | None
    allow_partition_switch: bool


def plan_instance(run: Run, database: CdcDatabase, table: SourceTable, request: InstanceRequest) -> InstancePlan:
    """Check a request against the table and the instances there are. Raises the errors of
    docs/reference/sqlserver_cdc.md, "Enabling a table"."""
    name = _instance_name(run, database, table, request.capture_instance)
    if any(column.name in _RESERVED for column in table.columns):
        raise cdc_error(22975, table.name)
    if request.filegroup_name is not None and not run(_FILEGROUP, (database.database_id, request.filegroup_name)):
        raise cdc_error(22973, request.filegroup_name, database.name)
    index = _row_identity(table, request.index_name)
    columns = _captured_columns(table, request.captured_column_list)
    if len(columns) > MAX_COLUMNS:
        raise cdc_error(22925, name, MAX_COLUMNS)
    net = request.supports_net_changes
    if net is None:
        # The documented default; emulator/docs/emulator.md, "Where sources disagree".
        net = index is not None
    if net:
        _check_net_support(table, index, columns)
    return InstancePlan(
        name, columns, index, net, request.role_name, request.filegroup_name, request.allow_partition_switch
    )


def _instance_name(run: Run, database: CdcDatabase, table: SourceTable, wanted: str | None) -> str:
    name = (wanted or "").rstrip() or f"{table.schema}_{table.name}"
    if len(name) > MAX_INSTANCE_NAME:
        raise cdc_error(22927, name)
    if "\0" in name:
        raise cdc_error(22932, name)
    existing = run(database.sql("SELECT capture_instance::text, source_object_id FROM :cdc.change_tables"), ())
    if any(str(other).lower() == name.lower() for other, _ in existing):
        raise cdc_error(22926, name)
    # docs/reference/sqlserver_cdc.md, "Two instances".
    if sum(source == table.object_id for _, source in existing) >= 2:
        raise cdc_error(22962, table.schema, table.name)
    return name


def _row_identity(table: SourceTable, index_name: str | None) -> SourceIndex | None:
    if index_name is None:
        return table.primary_key
    index = table.index(index_name)
    if index is None:
        raise cdc_error(22928, index_name, table.schema, table.name)
    if not index.is_unique:
        raise cdc_error(22929, index.name, table.schema, table.name)
    for name in index.columns:
        column = table.column(name)
        if column is not None and column.declared.nullable:
            raise cdc_error(22838, index.name, table.schema, table.name)
    return index


def _captured_columns(table: SourceTable, wanted: str | None) -> tuple[SourceColumn, ...]:
    """Return the columns in the table's order, whatever the order of the list: ordinals follow the source columns."""
    if wanted is None:
        return table.columns
    names = parse_column_list(wanted)
    if not names:
        raise cdc_error(22942, table.schema, table.name)
    chosen = []
    for name in names:
        column = table.column(name)
        if column is None:
            raise cdc_error(22930, name, table.schema, table.name)
        chosen.append(column.column_id)
    return tuple(column for column in table.columns if column.column_id in chosen)


def _check_net_support(table: SourceTable, index: SourceIndex | None, columns: Sequence[SourceColumn]) -> None:
    if index is None:
        raise cdc_error(22939)
    if len(index.columns) > MAX_KEY_COLUMNS:
        raise cdc_error(22865, index.name, table.schema, table.name)
    if not set(index.columns) <= {column.name for column in columns}:
        raise cdc_error(22943)


def parse_column_list(text: str) -> list[str]:
    """Return the names of a comma-separated list: bare, [bracketed] or "quoted" (the closing mark doubled inside)."""
    names: list[str] = []
    at = 0
    while at < len(text):
        name, at = _parse_name(text, at)
        if name:
            names.append(name)
        at = text.find(",", at) + 1 or len(text)
    return names


def _parse_name(text: str, at: int) -> tuple[str, int]:
    while at < len(text) and text[at].isspace():
        at += 1
    closing = {"[": "]", '"': '"'}.get(text[at : at + 1])
    if closing is None:
        end = text.find(",", at)
        end = len(text) if end < 0 else end
        return text[at:end].strip(), end
    name, at = "", at + 1
    while True:
        end = text.find(closing, at)
        if end < 0:
            raise cdc_error(22965)
        name, at = name + text[at:end], end + 1
        if text[at : at + 1] != closing:
            return name, at
        name, at = name + closing, at + 1


def create_instance(run: Run, database: CdcDatabase, table: SourceTable, plan: InstancePlan) -> int:
    """Make the instance; returns the change table's object id. The caller holds ``lock_instances``."""
    # docs/reference/sqlserver_cdc.md, "Enabling a table": it waits for open transactions that have written to the
    # table.
    run(f"LOCK TABLE {table.relation} IN SHARE ROW EXCLUSIVE MODE", ())
    if not table.is_tracked:
        # PostgreSQL logs whole old rows from here on, which operations 1 and 3 show.
        run(f"ALTER TABLE {table.relation} REPLICA IDENTITY FULL", ())
        run(f"ALTER PUBLICATION {quote(database.slot)} ADD TABLE {table.relation}", ())
        run("UPDATE emulator.objects SET is_tracked_by_cdc = true WHERE object_id = $1::int", (table.object_id,))
    object_id = _create_change_table(run, database, plan)
    # Under the lock on the table: no change of it can lie between this place and the commit (docs/adr/0003).
    enabled_at = _log_enabling(run, database.database_id, object_id)
    run(
        "INSERT INTO emulator.cdc_instances VALUES ($1::int, $2::int, $3::pg_lsn)",
        (object_id, database.database_id, position_text(enabled_at)),
    )
    _write_metadata(run, database, table, plan, object_id=object_id, enabled_at=enabled_at)
    create_view(run, database, object_id)
    key = _net_key(plan) if plan.index and plan.supports_net_changes else None
    captured = [column.declared.postgres_name for column in plan.columns]
    create_functions(run, database, plan.name, object_id, columns=captured, key=key)
    return object_id


def _create_change_table(run: Run, database: CdcDatabase, plan: InstancePlan) -> int:
    name = f"{plan.name}_CT"
    captured = [_captured_declaration(column.declared) for column in plan.columns]
    columns = [*CHANGE_TABLE_START, *captured, *CHANGE_TABLE_END]
    object_id = create_table(run, Home(database.database_id, CDC_SCHEMA, database.schema), name, columns)
    # Unique as SQL Server's clustered index is; it also makes a change that is captured twice an error.
    relation = qualified(database.schema, postgres_name(name))
    register_clustered_index(run, object_id, f"{name}_clustered_idx", relation, CHANGE_ORDER)
    return object_id


def _net_key(plan: InstancePlan) -> list[KeyColumn]:
    """Return the columns by which net changes are grouped."""
    declared = {column.declared.name: column.declared for column in plan.columns}
    names = plan.index.columns if plan.index else ()
    return [KeyColumn(postgres_name(name), declared[name].collation) for name in names]


def _captured_declaration(source: Declared) -> Declared:
    """Return the source column as its change table has it: nullable, no identity, rowversion as plain bytes."""
    type_ = TsqlType("binary", 8) if source.type.name == "rowversion" else source.type
    return Declared(source.name, type_, source.storage, collation=source.collation)


def _log_enabling(run: Run, database_id: int, object_id: int) -> int:
    """Write the instance into the log; from this place on, every commit on the table is the instance's."""
    ((text,),) = run(
        "SELECT pg_logical_emit_message(true, 'cdc', $1::text)::text",
        (json.dumps({"database_id": database_id, "object_id": object_id}),),
    )
    return parse_position(str(text))


def _write_metadata(
    run: Run, database: CdcDatabase, table: SourceTable, plan: InstancePlan, *, object_id: int, enabled_at: int
) -> None:
    run(
        database.sql(_CHANGE_TABLES_ROW),
        (
            object_id,
            table.object_id,
            plan.name,
            database.lsn_at(enabled_at),
            int(plan.supports_net_changes),
            plan.role_name,
            plan.index.name if plan.index else None,
            plan.filegroup_name,
            int(plan.allow_partition_switch),
        ),
    )
    for ordinal, column in enumerate(plan.columns, start=1):
        values = (object_id, column.name, column.column_id, _catalog_type(column), ordinal, int(column.is_computed))
        run(database.sql(_CAPTURED_COLUMNS_ROW), values)
    for ordinal, name in enumerate(plan.index.columns if plan.index else (), start=1):
        key = table.column(name)
        run(database.sql(_INDEX_COLUMNS_ROW), (object_id, name, ordinal, key.column_id if key else None))


def _catalog_type(column: SourceColumn) -> str:
    """Return the type's name in sys.types, which calls rowversion timestamp."""
    return BY_NAME[column.declared.type.name].catalog_name


def lock_instances(run: Run, database_id: int) -> None:
    """Serialise those who change a database's instances until their transaction ends; the capture job notices the new
    version."""
    # The lock on the row lasts until the transaction ends.
    run("UPDATE emulator.cdc_databases SET version = version + 1 WHERE database_id = $1::int", (database_id,))


def is_cdc_table(schema: str) -> bool:
    """Return whether a table of this schema belongs to CDC itself."""
    return schema.lower() == CDC_SCHEMA


# start_lsn is provisional: the capture job raises it to the commit's LSN where it has to (docs/adr/0003).
_CHANGE_TABLES_ROW = """
INSERT INTO :cdc.change_tables (object_id, version, source_object_id, capture_instance, start_lsn, supports_net_changes,
    has_drop_pending, role_name, index_name, filegroup_name, create_date, partition_switch)
VALUES ($1::int, 0, $2::int, $3::varchar, $4::bytea, $5::smallint, NULL, $6::varchar, $7::varchar, $8::varchar,
    emulator_cdc.now(), $9::smallint)
"""
_CAPTURED_COLUMNS_ROW = (
    "INSERT INTO :cdc.captured_columns VALUES ($1::int, $2::varchar, $3::int, $4::varchar, $5::int, $6::smallint, NULL)"
)
_INDEX_COLUMNS_ROW = "INSERT INTO :cdc.index_columns VALUES ($1::int, $2::varchar, $3::smallint, $4::int)"
