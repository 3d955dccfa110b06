"""Is the warehouse equal to the source? Row by row, whatever the order, in bounded memory.

The source's rows go the way of a first load (same statements, same casts, COPY) into a scratch table, and the warehouse
compares that with the live rows of the target. Needs no Spark; it is here because it reads as the load reads.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from floodmark.core.capture import SourceSnapshot, TableSighting
from floodmark.core.errors import CdcNotEnabledError, NotHarvestedYetError, OperatorError
from floodmark.core.lsn import Lsn
from floodmark.core.naming import DELETED_COLUMN, STAGING_SCHEMA, quote, quote_table, staging_table
from floodmark.core.planning import plan_table
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.window import TablePlan, WindowPlan
from floodmark.postgres import open_session, open_transaction
from floodmark.spark.data_source import RowsPart, SqlServerReader
from floodmark.spark.stage import StageWriter
from floodmark.sqlserver.connection import SqlServerConnection
from floodmark.sqlserver.source import SqlServerSource
from floodmark.warehouse.connection import WarehouseConnection
from floodmark.warehouse.staging import create_staging

_SCRATCH_WINDOW_ID = 0
"""No window has this id; the attempt, a random number, keeps two comparisons apart."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One key. kind: 'missing in the warehouse', 'not in the source' or 'different' (then in these ``columns``)."""

    key: dict[str, str]
    kind: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        key = ", ".join(f"{name} = {value}" for name, value in self.key.items())
        return f"({key}): {self.kind}" + (f" in {', '.join(self.columns)}" if self.columns else "")


@dataclass(frozen=True, slots=True)
class TableVerification:
    """different_keys: all of them; ``differences`` holds the first ones."""

    source: TableName
    target: TableName
    source_rows: int
    target_rows: int
    different_keys: int
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        return self.different_keys == 0


def verify_tables(
    settings: PipelineSettings, source: SqlServerConnection, warehouse: WarehouseConnection, limit: int = 20
) -> Iterator[TableVerification]:
    """One result per table, in the order of the configuration. limit: how many differing keys are named.

    Rows that the source gets while this runs may show as differences. Raises from ``core.errors``.
    """
    snapshot = SqlServerSource(source).read_snapshot(
        settings.sources, {table.source: table.capture_instance for table in settings.tables if table.capture_instance}
    )
    sightings = {sighting.table: sighting for sighting in snapshot.tables}
    for table in settings.tables:
        plan = _scratch_plan(settings, table, sightings[table.source], snapshot)
        with _scratch_table(plan, warehouse):
            rows = _copy_source(plan, source, warehouse)
            yield _compare(plan, warehouse, rows, limit)


def _scratch_plan(
    settings: PipelineSettings, table: TableSettings, sighting: TableSighting, snapshot: SourceSnapshot
) -> WindowPlan:
    if sighting.instance is None:
        raise CdcNotEnabledError(
            str(table.source), "the login sees no such table with a capture instance.", "Enable CDC on it."
        )
    if not isinstance(snapshot.max_lsn, Lsn):
        raise NotHarvestedYetError(str(table.source), "the capture job has not run yet.", "Try again in a minute.")
    plan = plan_table(table, sighting, snapshot, None)
    return WindowPlan(
        _SCRATCH_WINDOW_ID, settings.name, snapshot.max_lsn, (plan,), attempt=secrets.randbelow(1_000_000_000)
    )


@contextmanager
def _scratch_table(plan: WindowPlan, warehouse: WarehouseConnection) -> Iterator[None]:
    name = quote_table(staging_table(plan, 0))
    with open_transaction(warehouse) as session:
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(STAGING_SCHEMA)}")
        session.execute(create_staging(plan, 0))
    try:
        yield
    finally:
        with open_session(warehouse) as session:
            session.execute(f"DROP TABLE IF EXISTS {name}")


def _copy_source(plan: WindowPlan, source: SqlServerConnection, warehouse: WarehouseConnection) -> int:
    table = plan.tables[0]
    batches = SqlServerReader(table, source, 1).read(RowsPart(None, None))
    writer = StageWriter(table, staging_table(plan, 0), plan.to_lsn, warehouse)
    return writer.write(writer.net_rows(batches), part=0)


def _compare(plan: WindowPlan, warehouse: WarehouseConnection, source_rows: int, limit: int) -> TableVerification:
    table = plan.tables[0]
    with open_transaction(warehouse, str(table.target)) as session:
        session.execute(f"ANALYZE {quote_table(staging_table(plan, 0))}")
        if session.execute("SELECT to_regclass(%s) IS NULL", (quote_table(table.target),)).fetchone() == (True,):
            raise OperatorError(str(table.target), "it does not exist yet.", "Run the pipeline first.")
        counted = session.execute(
            f"SELECT count(*) FROM {quote_table(table.target)} WHERE NOT {quote(DELETED_COLUMN)}"  # noqa: S608
        ).fetchone()
        cursor = session.cursor(row_factory=dict_row)
        found = cursor.execute(_difference_query(plan, table), (limit,)).fetchall()
    return TableVerification(
        source=table.source,
        target=table.target,
        source_rows=source_rows,
        target_rows=int(counted[0]) if counted else 0,
        different_keys=found[0]["total"] if found else 0,
        differences=tuple(_difference(row, table) for row in found),
    )


def _difference_query(plan: WindowPlan, table: TablePlan) -> sql.Composed:
    """Every key in only one of the two, or with a value that is not the same, NULL being the same as NULL."""
    source_table = table.instance.table
    names = [column.name for column in source_table.stored_columns]
    both = [(sql.Identifier("s", name), sql.Identifier("t", name)) for name in names]
    key = [sql.Identifier("s", name) for name in source_table.key]
    other_key = [sql.Identifier("t", name) for name in source_table.key]
    return sql.SQL(
        "SELECT {keys}, {s_key} IS NULL AS only_target, {t_key} IS NULL AS only_source, "
        "array_remove(ARRAY[{changed}], NULL) AS changed, count(*) OVER () AS total "
        "FROM {scratch} AS s FULL JOIN (SELECT * FROM {target} WHERE NOT {deleted}) AS t ON {on} "
        "WHERE {s_key} IS NULL OR {t_key} IS NULL OR ({s_row}) IS DISTINCT FROM ({t_row}) ORDER BY 1 LIMIT %s"
    ).format(
        keys=sql.SQL(", ").join(
            sql.SQL("coalesce({}::text, {}::text) AS {}").format(a, b, sql.Identifier(f"key{number}"))
            for number, (a, b) in enumerate(zip(key, other_key, strict=True))
        ),
        s_key=key[0],
        t_key=other_key[0],
        changed=sql.SQL(", ").join(
            sql.SQL("CASE WHEN {} IS DISTINCT FROM {} THEN {} END").format(a, b, sql.Literal(name))
            for name, (a, b) in zip(names, both, strict=True)
        ),
        scratch=_identifier(staging_table(plan, 0)),
        target=_identifier(table.target),
        deleted=sql.Identifier(DELETED_COLUMN),
        on=sql.SQL(" AND ").join(sql.SQL("{} = {}").format(a, b) for a, b in zip(key, other_key, strict=True)),
        # ROW: parentheses alone are no row where a table has one column.
        s_row=sql.SQL("ROW({})").format(sql.SQL(", ").join(a for a, _ in both)),
        t_row=sql.SQL("ROW({})").format(sql.SQL(", ").join(b for _, b in both)),
    )


def _difference(row: dict[str, Any], table: TablePlan) -> Difference:
    key = {name: str(row[f"key{number}"]) for number, name in enumerate(table.instance.table.key)}
    if row["only_source"]:
        return Difference(key, "missing in the warehouse", ())
    if row["only_target"]:
        return Difference(key, "not in the source", ())
    return Difference(key, "different", tuple(row["changed"]))


def _identifier(name: TableName) -> sql.Identifier:
    return sql.Identifier(name.schema, name.name)
