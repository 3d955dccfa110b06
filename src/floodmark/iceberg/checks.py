"""``IcebergQuality``: the checks of a window by Spark, on the tables that readers do not see yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp

from floodmark.core.errors import ConfigError, DataQualityError, FloodmarkError
from floodmark.core.naming import history_view_name
from floodmark.core.plan import TableCounts, TablePlan, WindowPlan, staging_table
from floodmark.core.schema import STAGING_SCHEMA, TableName
from floodmark.iceberg.lake import UNPUBLISHED
from floodmark.iceberg.merge import spark_errors
from floodmark.iceberg.tables import in_spark, lake_name, spark_name
from floodmark.iceberg.warehouse import IcebergWarehouse
from floodmark.postgres.warehouse.targets import list_relations
from floodmark.quality.checks import (
    BATCH,
    Batch,
    Check,
    FailedCheck,
    NoRows,
    RowCount,
    UnansweredCheck,
    build_batches,
    errors_by_table,
    select_failed,
)
from floodmark.quality.expectations import find_unmet, open_in_spark
from floodmark.quality.unmerged import select_doubled

# ruff: noqa: S608  (names are quoted, and views are constants)

_LOG = logging.getLogger(__name__)
_BATCH_VIEW = "floodmark_batch"
_FRESH = "fresh"
"""The check that reads the ledger, which Spark does not."""
_GAPS = "every_ended_version_has_its_next"
"""The check of a history whose staged rows are there."""


class IcebergQuality:
    """``sync.ports.Quality`` for a lake. close: ends the Spark that the checks have opened."""

    def __init__(self, warehouse: IcebergWarehouse, close: Callable[[], None]) -> None:
        self._warehouse = warehouse
        self._close = close

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        """Run every check of every table, and record what was read of those that pass: only that is published.

        Log warnings. Return the errors about the tables that fail.
        """
        try:
            with spark_errors(plan.pipeline):
                return self._check(plan, counts)
        finally:
            self._close()

    def _check(self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]) -> Mapping[TableName, FloodmarkError]:
        session, catalog = self._warehouse.session(), self._warehouse.catalog
        locations = catalog.read_locations(list_relations(plan.tables))
        errors: dict[TableName, FloodmarkError] = {}
        results: list[FailedCheck | UnansweredCheck] = []
        opened = self._warehouse.open_rows(plan, counts)
        checks = 0
        for index, (table, rows) in enumerate(zip(plan.tables, opened, strict=True)):
            views = {}
            try:
                found = build_batches(plan, index, counts[table.source], 0, rows)
            except ConfigError as error:
                errors[table.source] = error
                continue
            batches = [_checked(table, each) for each in found]
            checks += sum(len(batch.checks) for batch in batches)
            with spark_errors(str(table.source)):
                if table.is_history:
                    views = {history_view_name(table.target): _open_versions(session, plan, index)}
                results += find_failed_checks(session, batches, views)
        if any(table.settings.expectations for table in plan.tables):
            open_batch = open_in_spark(lambda sql: session.sql(_parsed_in_spark(sql, {})))
            for batch, unmet in find_unmet(plan, opened, open_batch).items():
                checks += len(batch.checks)
                results += unmet
        errors |= errors_by_table(results, _refused)
        passed = list_relations(table for table in plan.tables if table.source not in errors)
        catalog.record_checked(plan, {target: locations[UNPUBLISHED, target] for target in passed})
        _LOG.info("window %s: %s checks were made, and refused %s tables.", plan.window_id, checks, len(errors))
        return errors


def find_failed_checks(
    session: SparkSession, batches: Sequence[Batch], views: Mapping[TableName, str] | None = None
) -> list[FailedCheck]:
    """Return the checks of a table that fail.

    Most windows pass: one statement asks all checks. Where its answer is not a plain yes, each check is asked alone.
    views: those of the session, by the names of the views that PostgreSQL has.
    """
    named = views or {}
    if _all_pass(session, batches, named):
        return []
    return [failed for batch in batches for failed in _ask_each(session, batch, named)]


def _all_pass(session: SparkSession, batches: Sequence[Batch], views: Mapping[TableName, str]) -> bool:
    """Return whether every check passes. False where one cannot be evaluated."""
    try:
        return not session.sql(_parsed_in_spark(select_failed(batches), views)).collect()
    except PySparkException:
        return False


def _ask_each(session: SparkSession, batch: Batch, views: Mapping[TableName, str]) -> Iterator[FailedCheck]:
    """Yield the checks of a batch that fail. The rows of the batch are read once."""
    rows = session.sql(_parsed_in_spark(batch.sql, views)).cache()
    try:
        rows.createOrReplaceTempView(_BATCH_VIEW)
        for check in batch.checks:
            expected = check.what.rows if isinstance(check.what, RowCount) else 0
            found = int(session.sql(_count(check, views)).collect()[0][0])
            if found != expected:
                against = "" if isinstance(check.what, RowCount) else " against it"
                yield FailedCheck(batch, check, f"{found} {'row' if found == 1 else 'rows'}{against}")
    finally:
        rows.unpersist()


def _count(check: Check, views: Mapping[TableName, str]) -> str:
    if isinstance(check.what, RowCount):
        return f"SELECT count(*) FROM {_BATCH_VIEW}"
    return _parsed_in_spark(f"SELECT count(*) FROM ({check.what.rows.sql.replace(BATCH, _BATCH_VIEW)}) AS found", views)


def _parsed_in_spark(sql: str, views: Mapping[TableName, str]) -> str:
    tree = sqlglot.parse_one(sql, dialect="postgres")
    for named in tree.find_all(exp.Table):
        if (view := views.get(TableName(named.db, named.name))) is not None:
            named.set("db", exp.to_identifier(STAGING_SCHEMA))  # of which Spark has views
            named.set("this", exp.to_identifier(view, quoted=True))
    for compared in list(tree.find_all(exp.GTE)):
        if isinstance(compared.this, exp.Tuple):
            compared.replace(_by_parts(compared))
    return in_spark(tree)


def _by_parts(compared: exp.GTE) -> exp.Expression:
    """Return the comparison of two pairs by their parts: Spark compares no rows whose columns have other names."""
    (load, lsn), (other_load, other_lsn) = compared.this.expressions, compared.expression.expressions
    is_same = exp.EQ(this=load.copy(), expression=other_load.copy())
    follows = exp.and_(is_same, exp.GTE(this=lsn, expression=other_lsn))
    return exp.paren(exp.or_(exp.GT(this=load, expression=other_load), follows))


def _open_versions(session: SparkSession, plan: WindowPlan, index: int) -> str:
    """Let a view of the session have the places of all versions of a history. Return its name."""
    table, name = plan.tables[index], f"{staging_table(plan, index).name}_versions"
    columns = ", ".join(map(spark_name, table.row_key))
    both = " UNION ALL ".join(f"SELECT {columns} FROM {lake_name(each)}" for each in list_relations([table]))
    session.sql(both).createOrReplaceTempView(name)
    return name


def _checked(table: TablePlan, batch: Batch) -> Batch:
    """Return a batch with the checks of a lake, which has no primary key."""
    checks = [check for check in batch.checks if check.name != _FRESH]
    if table.is_history and any(check.name == _GAPS for check in checks):
        doubled = NoRows(select_doubled(table, f"SELECT * FROM {BATCH}"))
        checks.append(Check("every_version_once", doubled, "no ended version is there twice"))
    return replace(batch, checks=tuple(checks))


def _refused(source: TableName, found: Sequence[FailedCheck]) -> DataQualityError:
    return DataQualityError(
        str(source),
        "; ".join(map(str, found)) + ".",
        "No row of the window is visible in the lake, and the watermark of the table stays at its position: the next "
        "run merges its changes again, with later ones.",
    )
