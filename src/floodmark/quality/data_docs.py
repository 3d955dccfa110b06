"""The folder of the data docs: the results and pages of Great Expectations, how long they are kept, the front page.

``<docs_dir>/index.html`` is ours (``report``); Great Expectations makes the pages of suites and results. Results are
kept as JSON below ``.stores``, so that the front page shows earlier windows too.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.quality.report import CheckedBatch, render_index

if TYPE_CHECKING:
    from great_expectations.data_context import EphemeralDataContext
    from great_expectations.data_context.types.base import DataContextConfig

_SITE = "floodmark"
_STORES = ".stores"
_STYLES = Path(__file__).parent / "data_docs_styles"


def configure_folder(config: DataContextConfig, docs_dir: Path) -> None:
    """Point the stores of suites and results, and the site, to ``docs_dir``."""
    for store, class_name in (
        (config.expectations_store_name, "ExpectationsStore"),
        (config.validation_results_store_name, "ValidationResultsStore"),
    ):
        config.stores[store] = {"class_name": class_name, "store_backend": _backend(docs_dir / _STORES / store)}
    config.plugins_directory = str(_STYLES)
    config.data_docs_sites = {
        _SITE: {"class_name": "SiteBuilder", "show_how_to_buttons": False, "store_backend": _backend(docs_dir)}
    }


def _backend(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)}


def run_name(pipeline: str, window_id: int) -> str:
    """Return the name of a window in results; ``_parse_run_name`` parses it."""
    return f"{pipeline} window {window_id}"


def _parse_run_name(name: str) -> tuple[str, int]:
    pipeline, _, window_id = name.rpartition(" window ")
    return pipeline, int(window_id)


def publish(context: EphemeralDataContext, docs_dir: Path, pipeline: str, kept_windows: int) -> None:
    """Write the pages of the newest check of the pipeline, delete those of old windows, and write the front page."""
    keys = _forget_old(context, docs_dir, pipeline, kept_windows)
    newest = max(key.run_id.run_time for key in keys)
    fresh = [key for key in keys if key.run_id.run_time == newest]
    context.build_data_docs(
        resource_identifiers=[*fresh, *{key.expectation_suite_identifier for key in fresh}], build_index=False
    )
    store = context.validation_results_store
    index = render_index(_checked_batch(key, store.get(key)) for key in store.list_keys())
    partial = docs_dir / ".index.html"
    partial.write_text(index, encoding="utf-8")
    partial.replace(docs_dir / "index.html")


def _forget_old(context: EphemeralDataContext, docs_dir: Path, pipeline: str, kept_windows: int) -> list[Any]:
    """Delete the old results of the pipeline. Return the keys of the others."""
    store = context.validation_results_store
    keys = [key for key in store.list_keys() if _parse_run_name(key.run_id.run_name)[0] == pipeline]
    kept_times = sorted({key.run_id.run_time for key in keys}, reverse=True)[:kept_windows]
    for key in keys:
        if key.run_id.run_time not in kept_times:
            store.remove_key(key)
            (docs_dir / _page(key)).unlink(missing_ok=True)
    return [key for key in keys if key.run_id.run_time in kept_times]


def _page(key: Any) -> str:
    """Return the path of a result's page, relative to the folder."""
    return "/".join(("validations", *map(str, key.to_tuple()))) + ".html"


def _checked_batch(key: Any, result: Any) -> CheckedBatch:
    pipeline, window_id = _parse_run_name(key.run_id.run_name)
    failed = [each for each in result.results if not each.success]
    sentences: dict[str, list[str]] = {"critical": [], "warning": []}
    for each in failed:
        severity = getattr(each.expectation_config.severity, "value", each.expectation_config.severity)
        sentences["warning" if severity == "warning" else "critical"].append(_sentence(each))
    return CheckedBatch(
        pipeline=pipeline,
        window_id=window_id,
        checked_at=key.run_id.run_time,
        name=key.expectation_suite_identifier.name.removeprefix(f"{pipeline}."),
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
