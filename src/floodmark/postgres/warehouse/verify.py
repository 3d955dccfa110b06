"""The comparison of a target with its source table: by the warehouse, value by value, in no order.

This module knows nothing of the source, whose rows arrive as Arrow batches. They stream into a temporary table. One
full join by the key, which spills to disk where it is large, finds every row that is missing, extra or different.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from floodmark.core.errors import OperatorError
from floodmark.core.plan import TablePlan, ValueColumn, value_columns
from floodmark.core.schema import DELETED_COLUMN, TableName, keep_column, quote, quote_table
from floodmark.core.status import RowDifference, TableVerification
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.sink import ArrowSession, replace_unstorable
from floodmark.postgres.warehouse.staging import staging_type, to_staging
from floodmark.postgres.warehouse.targets import column_types
from floodmark.sync.ports import DEFAULT_LISTED_KEYS, RowShape

_SOURCE_ROWS = TableName("", "source_rows")
_TARGET_ROWS = TableName("", "target_rows")
_CHANGED_KEYS = TableName("", "changed_keys")
_DIFFERENCES = "row_differences"
_KINDS = ("missing", "extra", "different", "waiting")
ChangedRows = tuple[RowShape, Iterable[pa.RecordBatch]]
"""Changes of a table, with their columns, as the target has them."""


ReadTarget = Callable[[TablePlan], Iterator[pa.RecordBatch] | None]
"""The living rows of a target that is no table of PostgreSQL, in the columns of its plan; None where there is none."""


class PostgresRowComparer:
    """The comparison of a target with its source's rows."""

    def __init__(self, connection: WarehouseConnection, read_target: ReadTarget | None = None) -> None:
        """Prepare it. connection: the database of the targets, and of quarantine.

        read_target: for targets that are elsewhere, whose rows are brought into a temporary table; None otherwise.
        """
        self._at = connection
        self._read_target = read_target

    def compare_rows(
        self,
        table: TablePlan,
        batches: Iterable[pa.RecordBatch],
        listed_keys: int = DEFAULT_LISTED_KEYS,
        changes: Iterable[ChangedRows] = (),
        *,
        is_sample: bool = False,
    ) -> TableVerification:
        """Compare all rows of a source table with its target.

        batches: the stored columns; they are read until their end before the comparison begins. changes: all rows that
        were changed after the target's state, as often as they are asked for; their keys are left out. The next ones
        are asked for while a difference is left. is_sample: the batches are not all rows, so that no row is extra.
        Raises from ``core.errors``; OperatorError for a table that has not been loaded.
        """
        columns = value_columns(table.in_target, table.settings.temporal)
        schema = _schema(columns)
        rows = _storable(batches, columns, range(len(columns)))
        with ArrowSession(self._at, str(table.source)) as session:
            comparison = _Comparison(session, table, self._read_target, is_sample=is_sample)
            return comparison.run(schema, rows, listed_keys, changes)

    def estimate_rows(self, table: TablePlan) -> int | None:
        """Return about how many rows the target of a table has, from statistics; None where there are none."""
        if self._read_target is not None:
            return None
        with open_transaction(self._at, str(table.source)) as session:
            found = session.execute(read_sql("estimate_rows"), {"target": quote_table(table.target)}).fetchone()
        return found[0] if found else None


@dataclass(frozen=True)
class _Comparison:
    session: ArrowSession
    table: TablePlan
    read_target: ReadTarget | None
    is_sample: bool

    def run(
        self, schema: pa.Schema, rows: Iterable[pa.RecordBatch], listed_keys: int, changes: Iterable[ChangedRows]
    ) -> TableVerification:
        session, table = self.session, self.table
        if self.read_target is None:
            self._require_target()
        session.execute(_create_rows(_SOURCE_ROWS, table))
        source_rows = session.copy(_SOURCE_ROWS, schema, rows)
        session.execute(f"ANALYZE {quote(_SOURCE_ROWS.name)}")
        living = self._living_rows(schema)
        session.execute(_create_differences(table, living, self._columns_of_target()))
        if self.is_sample:
            session.execute(f"DELETE FROM {_DIFFERENCES} WHERE kind = 'extra'")  # noqa: S608
        [(target_rows,)] = session.fetch(f"SELECT count(*) FROM {living}")  # noqa: S608
        session.execute(_mark_waiting(table))
        session.execute(_create_changed_keys(table))
        changed_rows = 0
        for shape, batches in changes:
            changed_rows = self._leave_out(shape, batches)
            if not self._count("kind <> 'waiting'"):
                break
        counted = {kind: self._count(f"kind = {_literal(kind)}") for kind in _KINDS}
        listed = session.fetch(
            f"SELECT key::text, kind, columns FROM {_DIFFERENCES} WHERE kind <> 'waiting'"  # noqa: S608
            f" ORDER BY key::text LIMIT {listed_keys:d}"
        )
        return TableVerification(
            source=table.source,
            target=table.target,
            source_rows=source_rows,
            target_rows=_int(target_rows),
            missing_rows=counted["missing"],
            extra_rows=counted["extra"],
            different_rows=counted["different"],
            differences=tuple(_difference(*row) for row in listed),
            waiting_rows=counted["waiting"],
            changed_rows=changed_rows,
            is_sample=self.is_sample,
        )

    def _require_target(self) -> None:
        name = _literal(quote_table(self.table.target))
        [(found,)] = self.session.fetch(f"SELECT to_regclass({name})::text")
        if found is None:
            raise self._missing()

    def _missing(self) -> OperatorError:
        return OperatorError(
            str(self.table.source),
            f"its target {self.table.target} does not exist, so there is nothing to compare.",
            "The first window with the table creates it: run the pipeline, then verify again.",
        )

    def _living_rows(self, schema: pa.Schema) -> str:
        """Return what FROM takes for the living rows of the target. It is called when the source's were read."""
        if self.read_target is None:
            return f"{quote_table(self.table.target)} WHERE NOT {quote(DELETED_COLUMN)}"
        if (batches := self.read_target(self.table)) is None:
            raise self._missing()
        columns = value_columns(self.table.in_target, self.table.settings.temporal)
        self.session.execute(_create_rows(_TARGET_ROWS, self.table))
        self.session.copy(_TARGET_ROWS, schema, _storable(batches, columns, range(len(columns))))
        self.session.execute(f"ANALYZE {quote(_TARGET_ROWS.name)}")
        return quote(_TARGET_ROWS.name)

    def _columns_of_target(self) -> frozenset[str]:
        """Return the columns of the target. It lacks new ones of the source until a window with a change adds them."""
        if self.read_target is not None:
            return frozenset(column.name for column in self.table.in_target.stored_columns)
        name = _literal(quote_table(self.table.target))
        rows = self.session.fetch(
            f"SELECT attname::text FROM pg_attribute WHERE attrelid = {name}::regclass"  # noqa: S608
            " AND attnum > 0 AND NOT attisdropped"
        )
        return frozenset(str(found) for (found,) in rows)

    def _count(self, condition: str) -> int:
        [(rows,)] = self.session.fetch(f"SELECT count(*) FROM {_DIFFERENCES} WHERE {condition}")  # noqa: S608
        return _int(rows)

    def _leave_out(self, shape: RowShape, batches: Iterable[pa.RecordBatch]) -> int:
        """Remove the differences of the keys in changed rows. Return the number of these keys."""
        names = [*(name for name, _ in shape.own), *(column.name for column in shape.values)]
        key = tuple(column for column in shape.values if column.name in shape.key)
        rows = _storable(batches, key, [names.index(column.name) for column in key])
        self.session.execute(f"TRUNCATE {quote(_CHANGED_KEYS.name)}")
        self.session.copy(_CHANGED_KEYS, _schema(key), rows)
        same = f"jsonb_build_array({', '.join(f'c.{quote(name)}' for name in shape.key)})"
        changed = f"SELECT DISTINCT {same} AS key FROM {quote(_CHANGED_KEYS.name)} AS c"  # noqa: S608
        self.session.execute(f"DELETE FROM {_DIFFERENCES} AS d USING ({changed}) AS c WHERE d.key = c.key")  # noqa: S608
        [(rows_left_out,)] = self.session.fetch(f"SELECT count(*) FROM ({changed}) AS c")  # noqa: S608
        return _int(rows_left_out)


def _schema(columns: Iterable[ValueColumn]) -> pa.Schema:
    return pa.schema([(column.name, staging_type(column.type)) for column in columns])


def _storable(
    batches: Iterable[pa.RecordBatch], columns: tuple[ValueColumn, ...], places: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of batches, with texts as they are stored. places: of the columns in the batches."""
    schema = _schema(columns)
    names = [column.name for column in columns]
    for batch in batches:
        if not batch.num_rows:
            continue
        chosen = pa.RecordBatch.from_arrays([batch.column(place) for place in places], names=names)
        stored, _ = replace_unstorable(chosen, columns)
        yield pa.RecordBatch.from_arrays(
            [to_staging(stored.column(i), column.type) for i, column in enumerate(columns)], schema=schema
        )


def _create_changed_keys(table: TablePlan) -> str:
    types, key = column_types(table), table.in_target.key
    columns = ", ".join(f"{quote(name)} {types[name]}" for name in types if name in key)
    return f"CREATE TEMPORARY TABLE {quote(_CHANGED_KEYS.name)} ({columns}) ON COMMIT DROP"


def _mark_waiting(table: TablePlan) -> str:
    """Return the statement that finds the differences of rows that wait in quarantine, as the source has them now."""
    source = table.in_target
    optional = {column.name for column in source.stored_columns if source.may_leave_out(column)}
    alike = []
    for column in source.stored_columns:
        name = _literal(column.name)
        same = f"coalesce(q.row_data -> {name}, 'null') = d.row_data -> {name}"
        if column.name in optional:
            same = f"({same} OR coalesce((q.row_data ->> {_literal(keep_column(column.name))})::boolean, false))"
        alike.append(same)
    # A version in quarantine has its load and its position behind its key.
    same_key = "jsonb_hash_extended(q.key, 0) = jsonb_hash_extended(d.key, 0) AND q.key = d.key"
    same_key = "q.key - -1 - -1 = d.key" if table.is_history else same_key
    return (
        f"UPDATE {_DIFFERENCES} AS d SET kind = 'waiting' WHERE d.kind <> 'extra' AND EXISTS ("  # noqa: S608
        f"SELECT FROM floodmark.quarantine AS q WHERE q.target_schema = {_literal(table.target.schema)}"
        f" AND q.target_name = {_literal(table.target.name)} AND q.settled_at IS NULL"
        f" AND {same_key} AND {' AND '.join(alike)})"
    )


def _create_rows(name: TableName, table: TablePlan) -> str:
    # The types of the source, not of the target: the target may have been widened, and binary COPY needs exact types.
    columns = ", ".join(f"{quote(column)} {kind}" for column, kind in column_types(table).items())
    return f"CREATE TEMPORARY TABLE {quote(name.name)} ({columns}) ON COMMIT DROP"


def _create_differences(table: TablePlan, living: str, found: frozenset[str]) -> str:
    """Return the statement for one row per key that is missing, extra or different. NULL equals NULL.

    living: the rows of the target, for FROM. found: its columns; others have NULL there in each row.
    """
    source = table.in_target
    names = [column.name for column in source.stored_columns]
    values = [name for name in names if name not in source.key]
    same_key = " AND ".join(f"s.{quote(name)} = t.{quote(name)}" for name in source.key)
    key = ", ".join(f"COALESCE(s.{quote(name)}, t.{quote(name)})" for name in source.key)
    extra = f"s.{quote(source.key[0])} IS NULL"
    missing = f"t.{quote(source.key[0])} IS NULL"
    differs = {name: f"s.{quote(name)} IS DISTINCT FROM t.{quote(name)}" for name in values}
    columns = ", ".join(f"CASE WHEN {test} THEN {_literal(name)} END" for name, test in differs.items())
    types = column_types(table)
    own = [quote(name) if name in found else f"NULL::{types[name]} AS {quote(name)}" for name in names]
    live = f"(SELECT {', '.join(own)} FROM {living}) AS t"  # noqa: S608
    return (
        f"CREATE TEMPORARY TABLE {_DIFFERENCES} ON COMMIT DROP AS SELECT jsonb_build_array({key}) AS key,"  # noqa: S608
        f" to_jsonb(s.*) AS row_data,"
        f" CASE WHEN {missing} THEN 'missing' WHEN {extra} THEN 'extra' ELSE 'different' END AS kind,"
        f" array_to_json(array_remove(ARRAY[{columns}]::text[], NULL))::text AS columns"
        f" FROM {quote(_SOURCE_ROWS.name)} AS s FULL JOIN {live} ON {same_key}"
        f" WHERE {' OR '.join([extra, missing, *differs.values()])}"
    )


def _difference(key: object, kind: object, columns: object) -> RowDifference:
    named = tuple(json.loads(str(columns))) if kind == "different" else ()
    return RowDifference(tuple(json.loads(str(key))), str(kind), named)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _int(value: object) -> int:
    return int(str(value))
