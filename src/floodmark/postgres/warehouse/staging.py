"""Staging tables: one per table and attempt, for first loads one per table, and the types of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.plan import LoadKind, TablePlan, WindowPlan, staging_prefix, staging_table
from floodmark.core.schema import (
    CHANGED_COLUMN,
    COMMAND_COLUMN,
    COMMITTED_COLUMN,
    LOAD_COLUMN,
    OPERATION_COLUMN,
    PART_COLUMN,
    POSITION_COLUMN,
    SEQUENCE_COLUMN,
    STAGING_SCHEMA,
    UNSTORABLE_COLUMN,
    TableName,
    keep_column,
    optional_columns,
    quote,
    quote_table,
)
from floodmark.core.settings import Style
from floodmark.core.types import Kind, WarehouseType
from floodmark.postgres.session import query
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.targets import OWN_TYPES, column_types
from floodmark.sync.arrow import arrow_type
from floodmark.sync.ports import StagedPart

# --------------------------------------------------------------------------------------------------------------------
# Staging tables: one per table and attempt, for first loads one per table. They are not logged.
#
# They are dropped when the window is finished.


_STAGED_COLUMNS = {
    Style.CURRENT: (),
    Style.LOG: (COMMAND_COLUMN, SEQUENCE_COLUMN, CHANGED_COLUMN, COMMITTED_COLUMN),
    Style.HISTORY: (COMMITTED_COLUMN,),
    Style.SNAPSHOT: (SEQUENCE_COLUMN,),
}


def staged_columns(table: TablePlan) -> tuple[str, ...]:
    """Return the columns of its style that workers write, in addition to position and operation."""
    found = _STAGED_COLUMNS[table.settings.style]
    return found if COMMITTED_COLUMN in found or not table.has_commit_times else (*found, COMMITTED_COLUMN)


def kept_columns(table: TablePlan) -> tuple[str, ...]:
    """Return the columns of which staging says that a change left them out; none where no value of a target is kept."""
    return () if table.is_log or table.is_snapshot else optional_columns(table.in_target)


def create_staging(plan: WindowPlan, index: int, load_id: int = 0) -> str:
    """Return the CREATE TABLE statement: the target's columns in its order, all nullable, then Floodmark's own.

    load_id: the window of the newest load of the whole table, where all changes are kept. UNLOGGED halves the amount of
    writing; a count before the merge detects rows that a crash of the warehouse removed.
    """
    table = plan.tables[index]
    types = column_types(table) | {
        POSITION_COLUMN: OWN_TYPES[POSITION_COLUMN],
        OPERATION_COLUMN: OWN_TYPES[OPERATION_COLUMN],
        PART_COLUMN: "integer",
        UNSTORABLE_COLUMN: "text",
        **{keep_column(name): "boolean" for name in kept_columns(table)},
    }
    types |= {name: OWN_TYPES[name] for name in staged_columns(table)}
    if table.keeps_changes:
        types[LOAD_COLUMN] = f"{OWN_TYPES[LOAD_COLUMN]} DEFAULT {load_id:d}"
    columns = ",\n  ".join(f"{quote(name)} {type_name}" for name, type_name in types.items())
    keyword = "TABLE IF NOT EXISTS" if table.kind is LoadKind.FIRST_LOAD else "TABLE"
    name = quote_table(staging_table(plan, index))
    return f"CREATE UNLOGGED {keyword} {name} (\n  {columns}\n) WITH (autovacuum_enabled = false)"


def read_load_ids(session: psycopg.Connection, plan: WindowPlan) -> Mapping[TableName, int]:
    """Return the window of the newest load of the whole table, for the tables of a plan that keep all changes.

    It is the same at the merge: no other load of a table is merged while a window that can be merged has it.
    """
    if not any(table.keeps_changes for table in plan.tables):
        return {}
    whole = query(session, "list_whole_loads", pipeline=plan.pipeline)
    loads = {TableName(row["source_schema"], row["source_name"]): row["window_id"] for row in whole}
    own = {table.source: plan.window_id for table in plan.tables if table.kind is LoadKind.FIRST_LOAD}
    return loads | own


def lasting_staging(plan: WindowPlan) -> set[TableName]:
    """Return the staging tables that are kept between attempts."""
    tables = enumerate(plan.tables)
    return {staging_table(plan, index) for index, table in tables if table.kind is LoadKind.FIRST_LOAD}


def count_parts(plan: WindowPlan, index: int) -> str:
    """Return the query for the number of rows of each part."""
    part = quote(PART_COLUMN)
    return f"SELECT {part}, count(*) FROM {quote_table(staging_table(plan, index))} GROUP BY {part}"  # noqa: S608


def delete_parts(plan: WindowPlan, index: int) -> str:
    """Return the statement that deletes the rows of some parts. Parameter: numbers."""
    name = quote_table(staging_table(plan, index))
    return f"DELETE FROM {name} WHERE {quote(PART_COLUMN)} = ANY(%(numbers)s)"  # noqa: S608


def keep_reported(session: psycopg.Connection, staging: TableName, parts: Sequence[StagedPart]) -> None:
    """Remove the rows of all tries but the reported ones.

    The window's row has to be locked, so that no other try commits meanwhile. xmin is the transaction that has written
    a row: no statement changes rows of changes in staging before the merge does.
    """
    receipts = {"receipts": [part.receipt for part in parts if part.receipt]}
    session.execute(
        f"DELETE FROM {quote_table(staging)} WHERE xmin <> ALL(%(receipts)s::text[]::xid[])",  # noqa: S608
        receipts,
    )


def has_rows(session: psycopg.Connection, staging: TableName, expected_rows: int) -> bool:
    """Return whether a staging table exists, and is not empty where it should hold rows."""
    found = session.execute("SELECT to_regclass(%s) IS NOT NULL", (quote_table(staging),)).fetchone()
    if found is None or not found[0]:
        return False
    some = session.execute(f"SELECT EXISTS (SELECT FROM {quote_table(staging)})").fetchone()  # noqa: S608
    return expected_rows == 0 or (some is not None and bool(some[0]))


def list_staging(session: psycopg.Connection, window_id: int) -> list[TableName]:
    """Return the staging tables of a window, of every attempt, and those that other windows have left behind."""
    rows = session.execute(read_sql("list_staging"), {"schema": STAGING_SCHEMA, "prefix": staging_prefix(window_id)})
    return [TableName(STAGING_SCHEMA, name) for (name,) in rows.fetchall()]


def count_staged(session: psycopg.Connection, names: Sequence[TableName]) -> Mapping[TableName, tuple[int, int]]:
    """Return about how many rows staging tables have, of finished and of unfinished writes."""
    asked = {"schema": STAGING_SCHEMA, "names": [name.name for name in names]}
    found = session.execute(read_sql("count_staged"), asked).fetchall()
    return {TableName(STAGING_SCHEMA, name): (rows, unfinished) for name, rows, unfinished in found}


# --------------------------------------------------------------------------------------------------------------------
# The Arrow types that COPY sends, and the conversion of a batch to them.
#
# The binary form of each type is the one that PostgreSQL uses for the column. Binary COPY checks no types, so a wrong
# type would store wrong values.


_OTHER_TYPES = {Kind.TIME: pa.time64("us"), Kind.UUID: pa.binary(16)}


def staging_type(of: WarehouseType) -> pa.DataType:
    """Return the type of a column in the batches that COPY sends."""
    return _OTHER_TYPES.get(of.kind) or arrow_type(of)


def to_staging(array: pa.Array, kind: WarehouseType) -> pa.Array:
    """Return a column of a batch in the type that COPY sends."""
    target = staging_type(kind)
    if kind.kind is Kind.UUID:
        return uuid_bytes(array)
    if kind.kind is Kind.TIME:  # Arrow cannot parse a time of day without a date
        day = pa.scalar("1970-01-01 ")
        return pc.binary_join_element_wise(day, array, "").cast(pa.timestamp("us")).cast(target)
    return array if array.type == target else array.cast(target)


_HEX_VALUE = np.zeros(256, dtype=np.uint8)
for _digits in ("0123456789abcdef", "0123456789ABCDEF"):
    _HEX_VALUE[np.frombuffer(_digits.encode(), dtype=np.uint8)] = np.arange(16, dtype=np.uint8)
_UUID_TEXT_LENGTH = 36
_UUID_DIGITS = np.array([i for i in range(_UUID_TEXT_LENGTH) if i not in (8, 13, 18, 23)])
_NIL = "00000000-0000-0000-0000-000000000000"


def uuid_bytes(array: pa.Array) -> pa.Array:
    """Return 16 bytes per value in the order of its text, from canonical texts in upper or lower case."""
    dense = pc.fill_null(array, _NIL).cast(pa.string())
    offset = dense.offset
    offsets = np.frombuffer(dense.buffers()[1], dtype=np.int32)[offset : offset + len(dense) + 1]
    if len(dense) == 0:
        return pa.array([], pa.binary(16))
    text = np.frombuffer(dense.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(-1, _UUID_TEXT_LENGTH)
    digits = _HEX_VALUE[text[:, _UUID_DIGITS]]
    values = np.ascontiguousarray((digits[:, 0::2] << 4) | digits[:, 1::2])
    packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(dense), [None, pa.py_buffer(values)])
    return pc.if_else(array.is_valid(), packed, pa.scalar(None, pa.binary(16))) if array.null_count else packed
