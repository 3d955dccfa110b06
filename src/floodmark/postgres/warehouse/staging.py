"""Staging tables: one per table and attempt, for first loads one per table. They are not logged.

They are dropped when the window is finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg

from floodmark.core.naming import (
    LSN_COLUMN,
    OPERATION_COLUMN,
    PART_COLUMN,
    STAGING_SCHEMA,
    UNSTORABLE_COLUMN,
    keep_column,
    optional_columns,
    quote,
    quote_table,
)
from floodmark.core.schema import TableName
from floodmark.core.window.plan import LoadKind, WindowPlan
from floodmark.core.window.staging_names import staging_prefix, staging_table
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.targets import OWN_TYPES, column_types
from floodmark.sync.ports.staging import StagedPart


def create_staging(plan: WindowPlan, index: int) -> str:
    """Return the CREATE TABLE statement: the target's columns in its order, all nullable, then Floodmark's own.

    UNLOGGED halves the amount of writing; a count before the merge detects rows that a crash of the warehouse removed.
    """
    table = plan.tables[index]
    types = column_types(table) | {
        LSN_COLUMN: OWN_TYPES[LSN_COLUMN],
        OPERATION_COLUMN: OWN_TYPES[OPERATION_COLUMN],
        PART_COLUMN: "integer",
        UNSTORABLE_COLUMN: "text",
        **{keep_column(name): "boolean" for name in optional_columns(table.feed.table)},
    }
    columns = ",\n  ".join(f"{quote(name)} {type_name}" for name, type_name in types.items())
    keyword = "TABLE IF NOT EXISTS" if table.kind is LoadKind.FIRST_LOAD else "TABLE"
    name = quote_table(staging_table(plan, index))
    return f"CREATE UNLOGGED {keyword} {name} (\n  {columns}\n) WITH (autovacuum_enabled = false)"


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
