"""``IcebergQuality``: the checks of a window by Spark, on the tables that readers do not see yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from floodmark.core.errors import ConfigError, DataQualityError, FloodmarkError
from floodmark.core.plan import TableCounts, WindowPlan
from floodmark.core.schema import TableName
from floodmark.iceberg.lake import UNPUBLISHED
from floodmark.iceberg.merge import spark_errors
from floodmark.iceberg.tables import in_spark
from floodmark.iceberg.warehouse import IcebergWarehouse
from floodmark.quality.checks import (
    BATCH,
    Batch,
    Check,
    FailedCheck,
    RowCount,
    Severity,
    build_batches,
    select_failed,
)

_LOG = logging.getLogger(__name__)
_BATCH_VIEW = "floodmark_batch"
_FRESH = "fresh"
"""The check that reads the ledger, which Spark does not."""


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
        locations = catalog.read_locations([table.target for table in plan.tables])
        errors: dict[TableName, FloodmarkError] = {}
        checks = 0
        for index, opened in enumerate(self._warehouse.open_rows(plan, counts)):
            table = plan.tables[index]
            try:
                batches = [_checked(each) for each in build_batches(plan, index, counts[table.source], 0, opened)]
            except ConfigError as error:
                errors[table.source] = error
                continue
            checks += sum(len(batch.checks) for batch in batches)
            with spark_errors(str(table.source)):
                failed = find_failed_checks(session, batches)
            for each in failed:
                if each.check.severity is Severity.WARNING:
                    _LOG.warning("%s", each)
            if critical := [each for each in failed if each.check.severity is Severity.CRITICAL]:
                errors[table.source] = _refused(table.source, critical)
        passed = [table.target for table in plan.tables if table.source not in errors]
        catalog.record_checked(plan, {target: locations[UNPUBLISHED, target] for target in passed})
        _LOG.info("window %s: %s checks were made, and refused %s tables.", plan.window_id, checks, len(errors))
        return errors


def find_failed_checks(session: SparkSession, batches: Sequence[Batch]) -> list[FailedCheck]:
    """Return the checks of a table that fail.

    Most windows pass: one statement asks all checks. Where its answer is not a plain yes, each check is asked alone.
    """
    if _all_pass(session, batches):
        return []
    return [failed for batch in batches for failed in _ask_each(session, batch)]


def _all_pass(session: SparkSession, batches: Sequence[Batch]) -> bool:
    """Return whether every check passes. False where one cannot be evaluated."""
    try:
        return not session.sql(_parsed_in_spark(select_failed(batches))).collect()
    except PySparkException:
        return False


def _ask_each(session: SparkSession, batch: Batch) -> Iterator[FailedCheck]:
    """Yield the checks of a batch that fail. The rows of the batch are read once."""
    rows = session.sql(_parsed_in_spark(batch.sql)).cache()
    try:
        rows.createOrReplaceTempView(_BATCH_VIEW)
        for check in batch.checks:
            expected = check.what.rows if isinstance(check.what, RowCount) else 0
            found = int(session.sql(_count(check)).collect()[0][0])
            if found != expected:
                against = "" if isinstance(check.what, RowCount) else " against it"
                yield FailedCheck(batch, check, f"{found} {'row' if found == 1 else 'rows'}{against}")
    finally:
        rows.unpersist()


def _count(check: Check) -> str:
    if isinstance(check.what, RowCount):
        return f"SELECT count(*) FROM {_BATCH_VIEW}"  # noqa: S608  (a constant)
    return _parsed_in_spark(f"SELECT count(*) FROM ({check.what.rows.sql.replace(BATCH, _BATCH_VIEW)}) AS found")  # noqa: S608


def _parsed_in_spark(sql: str) -> str:
    return in_spark(sqlglot.parse_one(sql, dialect="postgres"))


def _checked(batch: Batch) -> Batch:
    return replace(batch, checks=tuple(check for check in batch.checks if check.name != _FRESH))


def _refused(source: TableName, found: Sequence[FailedCheck]) -> DataQualityError:
    return DataQualityError(
        str(source),
        "; ".join(map(str, found)) + ".",
        "No row of the window is visible in the lake, and the watermark of the table stays at its position: the next "
        "run merges its changes again, with later ones.",
    )
