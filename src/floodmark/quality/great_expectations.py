"""The checks of a window, and its report by Great Expectations, the data docs, as a static site.

Plain SQL gives the answers (``one_pass``). This module is the only importer of ``great_expectations``: the import takes
seconds and is done when a window does not pass all checks. The context is ephemeral and does not contain the
warehouse's password, which is substituted when the engine is created. So neither the report nor a printed context shows
it.

Great Expectations has its own rules for names and texts. Asset and suite names become paths, a query is a template of
``str.format`` and then a text of SQLAlchemy, and the rows of a batch become a part of such a query. ``_neutral``,
``_as_template`` and ``_as_batch`` each serve one of them. A report that cannot be written stops no table.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL

from floodmark.core.errors import ConfigError, DataQualityError, FloodmarkError
from floodmark.core.schema import TableName
from floodmark.core.window.plan import TableCounts, WindowPlan
from floodmark.quality.data_docs import build_pages, configure_folder, locked, passed, publish, run_name
from floodmark.quality.one_pass import FailedCheck, UnansweredCheck, find_failed
from floodmark.quality.report import CheckedBatch
from floodmark.quality.suites import BATCH, Batch, Check, RowCount, Severity, build_batches
from floodmark.sync.ports.warehouse import CheckedRows

if TYPE_CHECKING:
    from great_expectations.data_context import EphemeralDataContext

_log = logging.getLogger(__name__)
_DATASOURCE = "warehouse"
_URL_NAME = "FLOODMARK_WAREHOUSE_URL"
DEFAULT_FRESHNESS_SECONDS = 3600.0
DEFAULT_KEPT_WINDOWS = 20
OpenRows = Callable[[WindowPlan, Mapping[TableName, TableCounts]], Sequence[CheckedRows]]


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
        batches, errors = self._build_batches(plan, counts)
        checked_at = datetime.now(UTC)
        results = find_failed(self._url, batches)
        if batches:
            self._write_report(plan, checked_at, batches, results)
        return self._judge(plan, sum(len(batch.checks) for batch in batches), results) | errors

    def _write_report(
        self,
        plan: WindowPlan,
        checked_at: datetime,
        batches: Sequence[Batch],
        results: Sequence[FailedCheck | UnansweredCheck],
    ) -> None:
        """Write the pages of a window. Log a warning where this fails: the answers to the checks are known."""
        try:
            with locked(self._docs_dir):
                if results:
                    checked = self._expect(plan, checked_at, batches)
                else:
                    checked = passed(self._docs_dir, plan, checked_at, batches)
                publish(self._docs_dir, checked, self._kept_windows)
        except Exception as error:  # noqa: BLE001  (a bug of the report must not keep rows from being published)
            reason = f"{type(error).__name__} {error}".splitlines()[0]
            _log.warning(
                "window %s: the report in %s was not written (%s). The checks were made, and the run goes on.",
                plan.window_id,
                self._docs_dir,
                reason,
            )

    def _expect(self, plan: WindowPlan, checked_at: datetime, batches: Sequence[Batch]) -> list[CheckedBatch]:
        """Run every check by Great Expectations, which writes a page for each batch."""
        context = self._open_context()
        try:
            _run_checks(context, plan, checked_at, batches)
        finally:
            context.data_sources.get(_DATASOURCE).get_engine().dispose()
        return build_pages(context, plan, checked_at, {_neutral(batch.name): batch.name for batch in batches})

    def _build_batches(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> tuple[list[Batch], dict[TableName, FloodmarkError]]:
        """Return the checks, and the errors about tables whose checks cannot be written."""
        batches: list[Batch] = []
        errors: dict[TableName, FloodmarkError] = {}
        for index, (table, rows) in enumerate(zip(plan.tables, self._open_rows(plan, counts), strict=True)):
            if rows.staged is None:
                _log.warning("%s: its staged rows are gone; only the target is checked.", table.source)
            try:
                batches += build_batches(plan, index, counts[table.source], self._freshness_seconds, rows)
            except ConfigError as error:
                errors[table.source] = error
        return batches, errors

    def _judge(
        self, plan: WindowPlan, checks: int, results: Sequence[FailedCheck | UnansweredCheck]
    ) -> dict[TableName, FloodmarkError]:
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
        # The check that meets a locked target has waited for it already.
        options = f"{self._url.query.get('options', '')} -c lock_timeout=100ms".strip()
        url = self._url.update_query_dict({"options": options}).render_as_string(hide_password=False)
        context = gx.get_context(mode="ephemeral", project_config=config, runtime_environment={_URL_NAME: url})
        context.data_sources.add_postgres(_DATASOURCE, connection_string=f"${{{_URL_NAME}}}", create_temp_table=False)
        return context


def _run_checks(
    context: EphemeralDataContext, plan: WindowPlan, checked_at: datetime, batches: Sequence[Batch]
) -> None:
    import great_expectations as gx  # noqa: PLC0415

    definitions = []
    for batch in batches:
        name = _neutral(batch.name)
        asset = context.data_sources.get(_DATASOURCE).add_query_asset(name, query=_as_batch(batch.sql))
        suite = gx.ExpectationSuite(name, expectations=[_expectation(check) for check in batch.checks])
        definitions.append(
            gx.ValidationDefinition(
                name=name,
                data=asset.add_batch_definition_whole_table(f"window {plan.window_id}"),
                suite=context.suites.add_or_update(suite),
            )
        )
    for definition in definitions:
        context.validation_definitions.add(definition)
    checkpoint = context.checkpoints.add(gx.Checkpoint(name=plan.pipeline, validation_definitions=definitions))
    run = gx.RunIdentifier(run_name=run_name(plan.pipeline, plan.window_id), run_time=checked_at)
    checkpoint.run(run_id=run)


def _expectation(check: Check) -> Any:
    from great_expectations import expectations as gxe  # noqa: PLC0415

    common = {"description": check.description, "severity": check.severity.value, "meta": {"check": check.name}}
    if isinstance(check.what, RowCount):
        return gxe.ExpectTableRowCountToEqual(value=check.what.rows, **common)
    return gxe.UnexpectedRowsExpectation(unexpected_rows_query=_as_template(check.what.rows.sql), **common)


def _neutral(name: str) -> str:
    """Return a name without characters that mean something in a path or a link, different for different names."""
    plain = re.sub(r"[^\w .-]", "_", name)
    return plain if plain == name else f"{plain} {sha256(name.encode()).hexdigest()[:8]}"


def _as_template(query: str) -> str:
    """Return the query for ``str.format``, which inserts the batch, and for ``sqlalchemy.text`` after it."""
    return query.replace("{", "{{").replace("}", "}}").replace(":", r"\:").replace(BATCH, "{batch}")


def _as_batch(query: str) -> str:
    """Return the query of a batch without characters that ``sqlalchemy.text`` changes.

    It is compiled once or twice, depending on the expectation, so no escape of ``text`` is right for both. Only its
    names can have such characters: PostgreSQL reads them by their code points.
    """
    return re.sub(r'"(?:[^"]|"")*"', lambda found: _by_code_points(found.group()), query)


def _by_code_points(quoted: str) -> str:
    escaped = re.sub(r"[:%\\]", lambda found: f"\\{ord(found.group()):04X}", quoted)
    return quoted if escaped == quoted else f"U&{escaped}"
