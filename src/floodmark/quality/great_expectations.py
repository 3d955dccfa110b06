"""The report on the checks of a window by Great Expectations, and the data docs as a static site."""

from __future__ import annotations

import fcntl
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL

from floodmark.core.errors import ConfigError, DataQualityError, FloodmarkError
from floodmark.core.plan import TableCounts, WindowPlan
from floodmark.core.schema import TableName
from floodmark.quality.checks import (
    LOCK_TIMEOUT_SECONDS,
    PAGE_STYLE,
    Batch,
    Check,
    CheckedBatch,
    FailedCheck,
    RowCount,
    UnansweredCheck,
    build_batches,
    errors_by_table,
    find_failed,
    from_json,
    render_index,
    render_passed,
    to_json,
)
from floodmark.quality.expectations import (
    DATASOURCE,
    as_batch,
    as_template,
    find_unmet,
    memory_config,
    neutral_name,
    write_declared,
)
from floodmark.sync.ports import CheckedRows

if TYPE_CHECKING:
    from great_expectations.data_context import EphemeralDataContext
    from great_expectations.data_context.types.base import DataContextConfig


# --------------------------------------------------------------------------------------------------------------------
# The folder of the data docs: the results and pages of Great Expectations, how long they are kept, the front page.
#
# ``<docs_dir>/index.html`` and the pages of windows without findings are ours (``report``); Great Expectations makes
# the pages of suites and results of the others. The results of each window are kept as JSON below ``.stores``, so that
# the front page shows earlier windows too.


_SITE = "floodmark"
_STORES = ".stores"
_RESULTS = "validation_results"
_RECORDS = "windows"
_PASSED = "passed"
_INDEX = "index.html"
_VALIDATIONS = "validations"
_STYLES = Path(__file__).parent / "data_docs_styles"


def configure_folder(config: DataContextConfig, docs_dir: Path) -> None:
    """Point the stores of suites and results, and the site, to ``docs_dir``."""
    for store, class_name, folder in (
        (config.expectations_store_name, "ExpectationsStore", "expectations"),
        (config.validation_results_store_name, "ValidationResultsStore", _RESULTS),
    ):
        config.stores[store] = {"class_name": class_name, "store_backend": _backend(docs_dir / _STORES / folder)}
    config.plugins_directory = str(_STYLES)
    config.data_docs_sites = {
        _SITE: {"class_name": "SiteBuilder", "show_how_to_buttons": False, "store_backend": _backend(docs_dir)}
    }


def _backend(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)}


def run_name(pipeline: str, window_id: int) -> str:
    """Return the name of a window in results."""
    return f"{pipeline} window {window_id}"


def passed(docs_dir: Path, plan: WindowPlan, checked_at: datetime, batches: Sequence[Batch]) -> list[CheckedBatch]:
    """Write the page of a window that passed every check, and return its results."""
    page = Path(_PASSED, f"{run_name(plan.pipeline, plan.window_id)} {_stamp(checked_at)}.html")
    found = [
        CheckedBatch(
            plan.pipeline,
            plan.window_id,
            checked_at,
            batch.name.removeprefix(f"{plan.pipeline}."),
            len(batch.checks),
            failures=(),
            warnings=(),
            page=str(page),
        )
        for batch in batches
    ]
    descriptions = {batch.name: [check.description for check in batch.checks] for batch in batches}
    (docs_dir / _PASSED).mkdir(parents=True, exist_ok=True)
    (docs_dir / page).write_text(render_passed(plan.pipeline, plan.window_id, checked_at, descriptions), "utf-8")
    return found


def declared_page(plan: WindowPlan, checked_at: datetime) -> Path:
    """Return the path of the page about the declared expectations of a window."""
    return Path(_PASSED, f"{run_name(plan.pipeline, plan.window_id)} {_stamp(checked_at)} expectations.html")


def build_pages(
    context: EphemeralDataContext, plan: WindowPlan, checked_at: datetime, batches: Mapping[str, str]
) -> list[CheckedBatch]:
    """Write the pages of a window that Great Expectations has checked, and return its results.

    batches: the names of the batches, by the names of their suites.
    """
    store = context.validation_results_store
    keys = [key for key in store.list_keys() if key.run_id.run_time == checked_at]
    with _failing_pages():
        context.build_data_docs(
            resource_identifiers=[*keys, *{key.expectation_suite_identifier for key in keys}], build_index=False
        )
    return [
        _checked_batch(plan, checked_at, key, batches[key.expectation_suite_identifier.name], store.get(key))
        for key in keys
    ]


@contextmanager
def _failing_pages() -> Iterator[None]:
    """Raise what keeps a page from being written. Great Expectations logs it with its traceback, and goes on."""

    def reraise(record: logging.LogRecord) -> bool:
        error = sys.exc_info()[1]
        if error is not None and record.levelno >= logging.ERROR:
            raise error
        return True

    logger = logging.getLogger("great_expectations.render.renderer.site_builder")
    logger.addFilter(reraise)
    try:
        yield
    finally:
        logger.removeFilter(reraise)


def publish(docs_dir: Path, checked: Sequence[CheckedBatch], kept_windows: int) -> None:
    """Record the results of a window, delete those of old windows of its pipeline, and write the front page."""
    records = docs_dir / _STORES / _RECORDS
    records.mkdir(parents=True, exist_ok=True)
    first = checked[0]
    name = f"{first.pipeline} {_stamp(first.checked_at)}.json"
    _replace(records / name, json.dumps([to_json(batch) for batch in checked]))
    windows = {path: _read_record(path) for path in records.glob("*.json")}
    own = sorted((path for path, batches in windows.items() if batches[0].pipeline == first.pipeline), reverse=True)
    for path in own[kept_windows:]:
        for page in {batch.page for batch in windows.pop(path)}:
            (docs_dir / page).unlink(missing_ok=True)
            _result_of(docs_dir, page).unlink(missing_ok=True)
        path.unlink()
    _replace(docs_dir / _INDEX, render_index(batch for batches in windows.values() for batch in batches))


def _read_record(path: Path) -> list[CheckedBatch]:
    return [from_json(batch) for batch in json.loads(path.read_text(encoding="utf-8"))]


def _replace(path: Path, content: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(content, encoding="utf-8")
    partial.replace(path)


def _stamp(moment: datetime) -> str:
    """Return a moment as a part of file names, which sort by it."""
    return f"{moment:%Y%m%dT%H%M%S.%fZ}"


def _result_of(docs_dir: Path, page: str) -> Path:
    """Return the file in which Great Expectations keeps the result that a page shows."""
    return docs_dir / _STORES / _RESULTS / Path(page).relative_to(Path(page).parts[0]).with_suffix(".json")


def _page(key: Any) -> str:
    """Return the path of a result's page, relative to the folder."""
    return "/".join((_VALIDATIONS, *map(str, key.to_tuple()))) + ".html"


def _checked_batch(plan: WindowPlan, checked_at: datetime, key: Any, name: str, result: Any) -> CheckedBatch:
    failed = [each for each in result.results if not each.success]
    sentences: dict[str, list[str]] = {"critical": [], "warning": []}
    for each in failed:
        severity = getattr(each.expectation_config.severity, "value", each.expectation_config.severity)
        sentences["warning" if severity == "warning" else "critical"].append(_sentence(each))
    return CheckedBatch(
        pipeline=plan.pipeline,
        window_id=plan.window_id,
        checked_at=checked_at,
        name=name.removeprefix(f"{plan.pipeline}."),
        checks=len(result.results),
        failures=tuple(sentences["critical"]),
        warnings=tuple(sentences["warning"]),
        page=_page(key),
    )


def _sentence(result: Any) -> str:
    found = result.result.get("observed_value", result.result.get("unexpected_count", "no"))
    return f"expected: {result.expectation_config.description}; found: {found} rows"


class DataDocs:
    """The data docs of a folder, read for a server: of one pipeline at a time, and without anything from the web."""

    def __init__(self, docs_dir: Path) -> None:
        self._docs_dir = docs_dir

    def has(self, pipeline: str) -> bool:
        """Return whether a window of the pipeline has been checked into this folder."""
        return any(self._records(pipeline))

    def read(self, pipeline: str, page: str) -> str | None:
        """Return a page as HTML, None where the pipeline has no such page. page: "" for the front page."""
        batches = self._batches(pipeline)
        if page in ("", _INDEX):
            return render_index(batches)
        # Only what the results name is read: no path leads elsewhere.
        if page not in {batch.page for batch in batches} | {_suite_page(batch.page) for batch in batches}:
            return None
        try:
            found = (self._docs_dir / page).read_text(encoding="utf-8")
        except FileNotFoundError:  # an old window's, deleted since
            return None
        return found if page.startswith(f"{_PASSED}/") else _without_web(found)

    def has_rows(self, page: str) -> bool:
        """Return whether a page may have values of rows: those that did not pass a check."""
        return page.startswith(f"{_VALIDATIONS}/")

    def _batches(self, pipeline: str) -> list[CheckedBatch]:
        found: list[CheckedBatch] = []
        for path in self._records(pipeline):
            with suppress(FileNotFoundError):  # an old window's, deleted meanwhile
                found += [batch for batch in _read_record(path) if batch.pipeline == pipeline]
        return found

    def _records(self, pipeline: str) -> Iterator[Path]:
        return (self._docs_dir / _STORES / _RECORDS).glob(f"{escape(pipeline)} *.json")


def _suite_page(page: str) -> str:
    """Return the page of the checks whose result a page of Great Expectations has; "" for another page."""
    folder, *suite = Path(page).parts
    # After the suite: the name of the run, its moment, and the batch.
    return f"{'/'.join(('expectations', *suite[:-3]))}.html" if folder == _VALIDATIONS else ""


# The filter of results needs a script, and the foot asks for a subscription. What a script would unfold is open.
_WITHOUT_SCRIPT = "<style>.card, footer, a[data-toggle] { display: none; } h4, h5, h6 { font-size: 1.05rem; }</style>"
_ELEMENTS = re.compile(r"<script\b.*?</script\s*>|<noscript\b.*?</noscript\s*>|<(?:link|img|meta)\b[^>]*>", re.I | re.S)


def _without_web(html: str) -> str:
    """Return a page of Great Expectations without scripts, styles and pictures from the web."""
    fits = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    return _ELEMENTS.sub("", html).replace("</head>", f"{fits}{PAGE_STYLE}{_WITHOUT_SCRIPT}</head>", 1)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, so that two pipelines write to it one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --------------------------------------------------------------------------------------------------------------------
# The checks of a window, and its report by Great Expectations, the data docs, as a static site.
#
# Plain SQL gives the answers (``one_pass``). This module is the only importer of ``great_expectations``: the import
# takes seconds and is done when a window does not pass all checks. The context is ephemeral and does not contain the
# warehouse's password, which is substituted when the engine is created. So neither the report nor a printed context
# shows it.
#
# Great Expectations has its own rules for names and texts. Asset and suite names become paths, a query is a template of
# ``str.format`` and then a text of SQLAlchemy, and the rows of a batch become a part of such a query. ``neutral_name``,
# ``as_template`` and ``as_batch`` each serve one of them. A report that cannot be written stops no table.


_log = logging.getLogger(__name__)
_URL_NAME = "FLOODMARK_WAREHOUSE_URL"
DEFAULT_FRESHNESS_SECONDS = 3600.0
DEFAULT_KEPT_WINDOWS = 20
OpenRows = Callable[[WindowPlan, Mapping[TableName, TableCounts]], Sequence[CheckedRows]]


class GreatExpectationsQuality:
    """``sync.ports.Quality`` over SQLAlchemy. It writes the data docs to ``docs_dir`` (index.html)."""

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

        url: the warehouse, for SQLAlchemy. open_rows: see ``sync.ports.Warehouse``. kept_windows: the number of
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
        return self._docs_dir / _INDEX

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        """Run every check of every table. Log warnings. Return the errors about the tables that fail.

        Raises WarehouseUnavailableError when the warehouse cannot be queried.
        """
        opened = self._open_rows(plan, counts)
        batches, errors = self._build_batches(plan, counts, opened)
        checked_at = datetime.now(UTC)
        results = find_failed(self._url, batches)
        declared = self._expect_declared(plan, opened)
        report = self._write_report(plan, checked_at, batches, results, declared) if batches else None
        checks = sum(len(batch.checks) for batch in (*batches, *declared))
        results += [each for found in declared.values() for each in found]
        return self._judge(plan, checks, results, report) | errors

    def _write_report(
        self,
        plan: WindowPlan,
        checked_at: datetime,
        batches: Sequence[Batch],
        results: Sequence[FailedCheck | UnansweredCheck],
        declared: Mapping[Batch, Sequence[FailedCheck | UnansweredCheck]],
    ) -> Path | None:
        """Write the pages of a window, and return the first page of the report.

        Log a warning and return None where this fails: the answers to the checks are known.
        """
        try:
            with locked(self._docs_dir):
                if results:
                    checked = self._expect(plan, checked_at, batches)
                else:
                    checked = passed(self._docs_dir, plan, checked_at, batches)
                checked += write_declared(self._docs_dir, plan, checked_at, declared, declared_page(plan, checked_at))
                publish(self._docs_dir, checked, self._kept_windows)
        except Exception as error:  # noqa: BLE001  (a bug of the report must not keep rows from being published)
            reason = f"{type(error).__name__} {error}".splitlines()[0]
            _log.warning(
                "window %s: the report in %s was not written (%s). The checks were made, and the run goes on. "
                "FLOODMARK_DATA_DOCS names the folder.",
                plan.window_id,
                self._docs_dir,
                reason,
            )
            return None
        return self.report

    def _expect_declared(
        self, plan: WindowPlan, opened: Sequence[CheckedRows]
    ) -> dict[Batch, list[FailedCheck | UnansweredCheck]]:
        """Return what fails of the expectations that the configuration declares, by the rows that they are about.

        Great Expectations is imported where there are any.
        """
        if not any(table.settings.expectations for table in plan.tables):
            return {}
        context = self._open_context(LOCK_TIMEOUT_SECONDS * 1000)
        try:
            source = context.data_sources.get(DATASOURCE)
            return find_unmet(plan, opened, lambda batch: _open_batch(source, batch))
        finally:
            context.data_sources.get(DATASOURCE).get_engine().dispose()

    def _expect(self, plan: WindowPlan, checked_at: datetime, batches: Sequence[Batch]) -> list[CheckedBatch]:
        """Run every check by Great Expectations, which writes a page for each batch."""
        # The check that meets a locked target has waited for it already.
        context = self._open_context(lock_timeout_ms=100, docs_dir=self._docs_dir)
        try:
            _run_checks(context, plan, checked_at, batches)
        finally:
            context.data_sources.get(DATASOURCE).get_engine().dispose()
        return build_pages(context, plan, checked_at, {neutral_name(batch.name): batch.name for batch in batches})

    def _build_batches(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts], opened: Sequence[CheckedRows]
    ) -> tuple[list[Batch], dict[TableName, FloodmarkError]]:
        """Return the checks, and the errors about tables whose checks cannot be written."""
        batches: list[Batch] = []
        errors: dict[TableName, FloodmarkError] = {}
        for index, (table, rows) in enumerate(zip(plan.tables, opened, strict=True)):
            if rows.staged is None:
                _log.warning("%s: its staged rows are gone; only the target is checked.", table.source)
            try:
                batches += build_batches(plan, index, counts[table.source], self._freshness_seconds, rows)
            except ConfigError as error:
                errors[table.source] = error
        return batches, errors

    def _judge(
        self, plan: WindowPlan, checks: int, results: Sequence[FailedCheck | UnansweredCheck], report: Path | None
    ) -> dict[TableName, FloodmarkError]:
        errors = errors_by_table(results, lambda source, found: _failed(source, found, report))
        _log.info(
            "window %s: %s checks passed, %s did not; report: %s",
            plan.window_id,
            checks - len(results),
            len(results),
            report or "none",
        )
        return errors

    def _open_context(self, lock_timeout_ms: int, docs_dir: Path | None = None) -> EphemeralDataContext:
        """Return a context on the warehouse. docs_dir: where it keeps results and pages; None: it keeps nothing."""
        config = memory_config()
        import great_expectations as gx  # noqa: PLC0415  (seconds)

        if docs_dir is not None:
            configure_folder(config, docs_dir)
        limits = f"-c lock_timeout={lock_timeout_ms}ms -c statement_timeout=0"
        options = f"{self._url.query.get('options', '')} {limits}".strip()
        url = self._url.update_query_dict({"options": options}).render_as_string(hide_password=False)
        context = gx.get_context(mode="ephemeral", project_config=config, runtime_environment={_URL_NAME: url})
        context.data_sources.add_postgres(DATASOURCE, connection_string=f"${{{_URL_NAME}}}", create_temp_table=False)
        return context


def _open_batch(source: Any, batch: Batch) -> Any:
    asset = source.add_query_asset(neutral_name(batch.name), query=as_batch(batch.sql))
    return asset.add_batch_definition_whole_table("rows").get_batch()


def _run_checks(
    context: EphemeralDataContext, plan: WindowPlan, checked_at: datetime, batches: Sequence[Batch]
) -> None:
    import great_expectations as gx  # noqa: PLC0415

    definitions = []
    for batch in batches:
        name = neutral_name(batch.name)
        asset = context.data_sources.get(DATASOURCE).add_query_asset(name, query=as_batch(batch.sql))
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


def _failed(source: TableName, found: Sequence[FailedCheck], report: Path | None) -> DataQualityError:
    return DataQualityError(
        str(source),
        "; ".join(map(str, found)) + ".",
        "The rows of the window are in the target, and the watermark of the table stays at its position: the next "
        "run merges its changes again, with later ones." + (f" Read the report: {report}" if report else ""),
    )


def _expectation(check: Check) -> Any:
    from great_expectations import expectations as gxe  # noqa: PLC0415

    common = {"description": check.description, "severity": check.severity.value, "meta": {"check": check.name}}
    if isinstance(check.what, RowCount):
        return gxe.ExpectTableRowCountToEqual(value=check.what.rows, **common)
    return gxe.UnexpectedRowsExpectation(unexpected_rows_query=as_template(check.what.rows.sql), **common)
