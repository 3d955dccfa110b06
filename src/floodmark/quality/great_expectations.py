"""The checks of a window by Great Expectations, with its report, the data docs, as a static site.

This module is the only importer of ``great_expectations``: the import takes seconds and is done when a window does not
pass all checks at once (``one_pass``). The context is ephemeral and does not contain the warehouse's password, which is
substituted when the engine is created. So neither the report nor a printed context shows it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL

from floodmark.core.errors import (
    ConfigError,
    DataQualityError,
    FloodmarkBugError,
    FloodmarkError,
    WarehouseUnavailableError,
    WatermarkConflictError,
)
from floodmark.core.naming import STAGING_SCHEMA
from floodmark.core.schema import TableName
from floodmark.core.window.plan import TableCounts, WindowPlan
from floodmark.quality.data_docs import build_pages, configure_folder, locked, passed, publish, run_name
from floodmark.quality.one_pass import all_pass
from floodmark.quality.report import CheckedBatch
from floodmark.quality.suites import (
    BATCH,
    Batch,
    Check,
    NoneMeets,
    NoRows,
    NotNull,
    RowCount,
    Severity,
    Unique,
    build_batches,
)
from floodmark.sync.ports.warehouse import CheckedRows

if TYPE_CHECKING:
    from great_expectations.data_context import EphemeralDataContext

_log = logging.getLogger(__name__)
_DATASOURCE = "warehouse"
_URL_NAME = "FLOODMARK_WAREHOUSE_URL"
DEFAULT_FRESHNESS_SECONDS = 3600.0
DEFAULT_KEPT_WINDOWS = 20
OpenRows = Callable[[WindowPlan, Mapping[TableName, TableCounts]], Sequence[CheckedRows]]


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that failed."""

    batch: Batch
    check: Check
    seen: str
    """The result, as a text for a message."""

    def __str__(self) -> str:
        return f"{self.batch.table}: {self.check.name}: expected that {self.check.description}; found {self.seen}"


@dataclass(frozen=True, slots=True)
class UnansweredCheck:
    """A check that could not be evaluated."""

    batch: Batch
    error: FloodmarkError


class GreatExpectationsQuality:
    """``sync.ports.quality.Quality`` over SQLAlchemy. It writes the data docs to ``docs_dir`` (index.html)."""

    def __init__(
        self,
        url: URL,
        open_rows: OpenRows,
        docs_dir: Path,
        *,
        freshness_seconds: float = DEFAULT_FRESHNESS_SECONDS,
        kept_windows: int = DEFAULT_KEPT_WINDOWS,
    ) -> None:
        """Prepare the checks.

        url: the warehouse, for SQLAlchemy. open_rows: see ``sync.ports.warehouse.Merging``. kept_windows: the number of
        windows per pipeline whose pages the report keeps.
        """
        self._url = url
        self._open_rows = open_rows
        self._docs_dir = docs_dir
        self._freshness_seconds = freshness_seconds
        self._kept_windows = kept_windows

    @property
    def report(self) -> Path:
        """Return the first page of the report."""
        return self._docs_dir / "index.html"

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        """Run every check of every table. Log warnings. Return the errors about the tables that fail.

        Raises WarehouseUnavailableError when the warehouse cannot be queried.
        """
        batches = self._build_batches(plan, counts)
        checked_at = datetime.now(UTC)
        results: list[FailedCheck | UnansweredCheck] = []
        with locked(self._docs_dir):
            if all_pass(self._url, batches):
                checked = passed(self._docs_dir, plan, checked_at, batches)
            else:
                results, checked = self._expect(plan, checked_at, batches)
            publish(self._docs_dir, checked, self._kept_windows)
        return self._judge(plan, sum(len(batch.checks) for batch in batches), results)

    def _expect(
        self, plan: WindowPlan, checked_at: datetime, batches: Sequence[Batch]
    ) -> tuple[list[FailedCheck | UnansweredCheck], list[CheckedBatch]]:
        """Run every check by Great Expectations, which writes a page for each batch."""
        context = self._open_context()
        try:
            results = list(_run_checks(context, plan, checked_at, batches))
        finally:
            context.data_sources.get(_DATASOURCE).get_engine().dispose()
        return results, build_pages(context, plan, checked_at)

    def _build_batches(self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]) -> list[Batch]:
        batches = []
        for index, (table, rows) in enumerate(zip(plan.tables, self._open_rows(plan, counts), strict=True)):
            if rows.staged is None:
                _log.warning("%s: its staged rows are gone; only the target is checked.", table.source)
            batches += build_batches(plan, index, counts[table.source], self._freshness_seconds, rows)
        return batches

    def _judge(
        self, plan: WindowPlan, checks: int, results: Sequence[FailedCheck | UnansweredCheck]
    ) -> Mapping[TableName, FloodmarkError]:
        critical: dict[TableName, list[FailedCheck]] = {}
        errors: dict[TableName, FloodmarkError] = {}
        for result in results:
            if isinstance(result, UnansweredCheck):
                errors.setdefault(result.batch.source, result.error)
            elif result.check.severity is Severity.WARNING:
                _log.warning("%s", result)
            else:
                critical.setdefault(result.batch.source, []).append(result)
        errors |= {source: self._failed(source, found) for source, found in critical.items() if source not in errors}
        _log.info(
            "window %s: %s checks passed, %s did not; report: %s",
            plan.window_id,
            checks - len(results),
            len(results),
            self.report,
        )
        return errors

    def _failed(self, source: TableName, found: Sequence[FailedCheck]) -> DataQualityError:
        return DataQualityError(
            str(source),
            "; ".join(map(str, found)) + ".",
            "The rows of the window are in the target, and the watermark of the table stays at its position: the next "
            f"run merges its changes again, with later ones. Read the report: {self.report}",
        )

    def _open_context(self) -> EphemeralDataContext:
        # The package reads it when it is imported; without it, usage data is sent.
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        import great_expectations as gx  # noqa: PLC0415  (seconds)
        from great_expectations.data_context.types.base import (  # noqa: PLC0415
            DataContextConfig,
            InMemoryStoreBackendDefaults,
            ProgressBarsConfig,
        )

        config = DataContextConfig(
            store_backend_defaults=InMemoryStoreBackendDefaults(),
            analytics_enabled=False,
            progress_bars=ProgressBarsConfig(globally=False),
        )
        configure_folder(config, self._docs_dir)
        url = self._url.render_as_string(hide_password=False)
        context = gx.get_context(mode="ephemeral", project_config=config, runtime_environment={_URL_NAME: url})
        context.data_sources.add_postgres(_DATASOURCE, connection_string=f"${{{_URL_NAME}}}", create_temp_table=False)
        return context


def _run_checks(
    context: EphemeralDataContext, plan: WindowPlan, checked_at: datetime, batches: Sequence[Batch]
) -> Iterator[FailedCheck | UnansweredCheck]:
    import great_expectations as gx  # noqa: PLC0415

    definitions = []
    for batch in batches:
        asset = context.data_sources.get(_DATASOURCE).add_query_asset(batch.name, query=batch.sql)
        suite = gx.ExpectationSuite(batch.name, expectations=[_expectation(check) for check in batch.checks])
        definitions.append(
            gx.ValidationDefinition(
                name=batch.name,
                data=asset.add_batch_definition_whole_table(f"window {plan.window_id}"),
                suite=context.suites.add_or_update(suite),
            )
        )
    for definition in definitions:
        context.validation_definitions.add(definition)
    checkpoint = context.checkpoints.add(gx.Checkpoint(name=plan.pipeline, validation_definitions=definitions))
    run = gx.RunIdentifier(run_name=run_name(plan.pipeline, plan.window_id), run_time=checked_at)
    result = checkpoint.run(run_id=run)
    by_name = {batch.name: batch for batch in batches}
    for outcome in result.run_results.values():
        yield from _findings(by_name[outcome.suite_name], outcome.results)


def _expectation(check: Check) -> Any:
    from great_expectations import expectations as gxe  # noqa: PLC0415

    common = {"description": check.description, "severity": check.severity.value, "meta": {"check": check.name}}
    match check.what:
        case NotNull(column):
            return gxe.ExpectColumnValuesToNotBeNull(column=column, **common)
        case Unique((column,)):
            return gxe.ExpectColumnValuesToBeUnique(column=column, **common)
        case Unique(columns):
            return gxe.ExpectCompoundColumnsToBeUnique(column_list=list(columns), **common)
        case RowCount(rows):
            return gxe.ExpectTableRowCountToEqual(value=rows, **common)
        case NoneMeets() as wanted:
            return gxe.UnexpectedRowsExpectation(unexpected_rows_query=_as_template(wanted.rows.sql), **common)
        case NoRows(query):
            return gxe.UnexpectedRowsExpectation(unexpected_rows_query=_as_template(query), **common)


def _as_template(query: str) -> str:
    """Return the query as a template: Great Expectations inserts the batch by ``str.format``, so braces are escaped."""
    return query.replace("{", "{{").replace("}", "}}").replace("{" + BATCH + "}", BATCH)


def _findings(batch: Batch, results: Sequence[Any]) -> Iterator[FailedCheck | UnansweredCheck]:
    """Yield the checks that failed or could not be evaluated.

    The order of the results differs: the description identifies the check.
    """
    by_description = {check.description: check for check in batch.checks}
    for result in results:
        check = by_description[result.expectation_config.description]
        if failure := _exception_message(result.exception_info):
            yield UnansweredCheck(batch, _unanswered(batch, check, failure))
        elif not result.success:
            yield FailedCheck(batch, check, _describe(check, result.result))


def _describe(check: Check, result: Mapping[str, Any]) -> str:
    match check.what:
        case NotNull() | Unique():
            return f"{_rows(result['unexpected_count'])} of {result['element_count']} against it"
        case RowCount():
            return _rows(result["observed_value"])
        case NoneMeets() | NoRows():
            return f"{_rows(result['observed_value'])} against it"


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def _exception_message(exception_info: Mapping[str, Any]) -> str:
    """Return the message of an exception; the fields are those of one exception, or of several by metric."""
    infos = [exception_info] if "raised_exception" in exception_info else exception_info.values()
    return next((str(info["exception_message"]) for info in infos if info["raised_exception"]), "")


def _unanswered(batch: Batch, check: Check, failure: str) -> FloodmarkError:
    """Return the error about a check without an answer. Raises those that concern all tables."""
    first_line = failure.splitlines()[0]
    source = str(batch.source)
    if "OperationalError" in failure or "InterfaceError" in failure:
        raise WarehouseUnavailableError(source, f"the warehouse aborted check {check.name}.", "", first_line)
    if "UndefinedTable" in failure and STAGING_SCHEMA in failure:
        raise WatermarkConflictError(source, "another run has finished the window meanwhile.", "Run again.")
    if check.declared:
        return ConfigError(source, f"rule {check.name} cannot be evaluated.", "Correct its sql.", first_line)
    return FloodmarkBugError(source, f"check {check.name} cannot be evaluated.", "", first_line)
