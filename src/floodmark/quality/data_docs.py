"""The folder of the data docs: the results and pages of Great Expectations, how long they are kept, the front page.

``<docs_dir>/index.html`` and the pages of windows without findings are ours (``report``); Great Expectations makes the
pages of suites and results of the others. The results of each window are kept as JSON below ``.stores``, so that the
front page shows earlier windows too.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.core.window.plan import WindowPlan
from floodmark.quality.report import CheckedBatch, from_json, render_index, render_passed, to_json
from floodmark.quality.suites import Batch

if TYPE_CHECKING:
    from great_expectations.data_context import EphemeralDataContext
    from great_expectations.data_context.types.base import DataContextConfig

_SITE = "floodmark"
_STORES = ".stores"
_RESULTS = "validation_results"
_RECORDS = "windows"
_PASSED = "passed"
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


def build_pages(
    context: EphemeralDataContext, plan: WindowPlan, checked_at: datetime, batches: Mapping[str, str]
) -> list[CheckedBatch]:
    """Write the pages of a window that Great Expectations has checked, and return its results.

    batches: the names of the batches, by the names of their suites.
    """
    store = context.validation_results_store
    keys = [key for key in store.list_keys() if key.run_id.run_time == checked_at]
    context.build_data_docs(
        resource_identifiers=[*keys, *{key.expectation_suite_identifier for key in keys}], build_index=False
    )
    return [
        _checked_batch(plan, checked_at, key, batches[key.expectation_suite_identifier.name], store.get(key))
        for key in keys
    ]


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
    _replace(docs_dir / "index.html", render_index(batch for batches in windows.values() for batch in batches))


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
    return "/".join(("validations", *map(str, key.to_tuple()))) + ".html"


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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, so that two pipelines write to it one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
