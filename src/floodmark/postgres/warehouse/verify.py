"""The comparison of a target with its source table: by the warehouse, value by value, in no order.

This module knows nothing of the source, whose rows arrive as Arrow batches. They stream into a temporary table. One
full join by the key, which spills to disk where it is large, finds every row that is missing, extra or different.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa

from floodmark.core.errors import OperatorError
from floodmark.core.plan import TablePlan, value_columns
from floodmark.core.schema import DELETED_COLUMN, TableName, quote, quote_table
from floodmark.core.status import RowDifference, TableVerification
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.sink import ArrowSession, replace_unstorable
from floodmark.postgres.warehouse.staging import staging_type, to_staging
from floodmark.postgres.warehouse.targets import column_types
from floodmark.sync.ports import DEFAULT_LISTED_KEYS

_SOURCE_ROWS = TableName("", "source_rows")
_DIFFERENCES = "row_differences"


class PostgresRowComparer:
    """The comparison of a target with its source's rows."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def compare_rows(
        self, table: TablePlan, batches: Iterable[pa.RecordBatch], listed_keys: int = DEFAULT_LISTED_KEYS
    ) -> TableVerification:
        """Compare all rows of a source table with its target.

        batches: the stored columns; they are read until their end before the comparison begins. Raises from
        ``core.errors``; OperatorError for a table that has not been loaded.
        """
        columns = value_columns(table.feed.table, table.settings.temporal)
        schema = pa.schema([(column.name, staging_type(column.type)) for column in columns])
        rows = (
            pa.RecordBatch.from_arrays(
                [to_staging(batch.column(i), column.type) for i, column in enumerate(columns)], schema=schema
            )
            for batch, _ in (replace_unstorable(each, columns) for each in batches)
        )
        return _compare(self._at, table, schema, rows, listed_keys)

    def estimate_rows(self, table: TablePlan) -> int | None:
        """Return about how many rows the target of a table has, from statistics; None where there are none."""
        with open_transaction(self._at, str(table.source)) as session:
            found = session.execute(read_sql("estimate_rows"), {"target": quote_table(table.target)}).fetchone()
        return found[0] if found else None


def _compare(
    at: WarehouseConnection, table: TablePlan, schema: pa.Schema, rows: Iterable[pa.RecordBatch], listed_keys: int
) -> TableVerification:
    with ArrowSession(at, str(table.source)) as session:
        [(found,)] = session.fetch(f"SELECT to_regclass({_literal(quote_table(table.target))})::text")
        if found is None:
            raise OperatorError(
                str(table.source),
                f"its target {table.target} does not exist, so there is nothing to compare.",
                "The first window with the table creates it: run the pipeline, then verify again.",
            )
        session.execute(_create_source_rows(table))
        source_rows = session.copy(_SOURCE_ROWS, schema, rows)
        session.execute(f"ANALYZE {quote(_SOURCE_ROWS.name)}")
        session.execute(_create_differences(table))
        live = f"SELECT count(*) FROM {quote_table(table.target)} WHERE NOT {quote(DELETED_COLUMN)}"  # noqa: S608
        [(target_rows,)] = session.fetch(live)
        counts = session.fetch(f"SELECT kind, count(*) FROM {_DIFFERENCES} GROUP BY kind")  # noqa: S608
        listed = session.fetch(
            f"SELECT key, kind, columns FROM {_DIFFERENCES} ORDER BY key LIMIT {listed_keys:d}"  # noqa: S608
        )
    counted = {kind: _int(rows) for kind, rows in counts}
    return TableVerification(
        source=table.source,
        target=table.target,
        source_rows=source_rows,
        target_rows=_int(target_rows),
        missing_rows=counted.get("missing", 0),
        extra_rows=counted.get("extra", 0),
        different_rows=counted.get("different", 0),
        differences=tuple(_difference(*row) for row in listed),
    )


def _create_source_rows(table: TablePlan) -> str:
    # The types of the source, not of the target: the target may have been widened, and binary COPY needs exact types.
    columns = ", ".join(f"{quote(name)} {kind}" for name, kind in column_types(table).items())
    return f"CREATE TEMPORARY TABLE {quote(_SOURCE_ROWS.name)} ({columns}) ON COMMIT DROP"


def _create_differences(table: TablePlan) -> str:
    """Return the statement for one row per key that is missing, extra or different. NULL equals NULL."""
    source = table.feed.table
    names = [column.name for column in source.stored_columns]
    values = [name for name in names if name not in source.key]
    same_key = " AND ".join(f"s.{quote(name)} = t.{quote(name)}" for name in source.key)
    key = ", ".join(f"COALESCE(s.{quote(name)}, t.{quote(name)})" for name in source.key)
    extra = f"s.{quote(source.key[0])} IS NULL"
    missing = f"t.{quote(source.key[0])} IS NULL"
    differs = {name: f"s.{quote(name)} IS DISTINCT FROM t.{quote(name)}" for name in values}
    columns = ", ".join(f"CASE WHEN {test} THEN {_literal(name)} END" for name, test in differs.items())
    live = f"(SELECT {', '.join(quote(name) for name in names)} FROM {quote_table(table.target)}"  # noqa: S608
    return (
        f"CREATE TEMPORARY TABLE {_DIFFERENCES} ON COMMIT DROP AS SELECT jsonb_build_array({key})::text AS key,"  # noqa: S608
        f" CASE WHEN {missing} THEN 'missing' WHEN {extra} THEN 'extra' ELSE 'different' END AS kind,"
        f" array_to_json(array_remove(ARRAY[{columns}]::text[], NULL))::text AS columns"
        f" FROM {quote(_SOURCE_ROWS.name)} AS s FULL JOIN {live} WHERE NOT {quote(DELETED_COLUMN)}) AS t ON {same_key}"
        f" WHERE {' OR '.join([extra, missing, *differs.values()])}"
    )


def _difference(key: object, kind: object, columns: object) -> RowDifference:
    named = tuple(json.loads(str(columns))) if kind == "different" else ()
    return RowDifference(tuple(json.loads(str(key))), str(kind), named)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _int(value: object) -> int:
    return int(str(value))
