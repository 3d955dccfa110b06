"""The content of the page *Floodmark status*: the pipelines of a viewer, or why one cannot be read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.app.status import read_status
from floodmark.app.status_table import status_table
from floodmark.core.errors import FloodmarkError
from floodmark.orchestration.context import open_app
from floodmark.orchestration.dags.cdc import dag_id
from floodmark.orchestration.pages.live_reads import LiveReads
from floodmark.orchestration.pages.status_html import status_html
from floodmark.wiring.places import config_path

if TYPE_CHECKING:
    from floodmark.app.context import AppContext

_UNAVAILABLE = 503
_NONE = "There is no pipeline whose DAG you may read."
_BUSY = "Other requests are waiting for the sources. Try again in some seconds."
_LIVE = LiveReads()


def read_page(readable_dags: Collection[str], *, live: bool) -> tuple[str, int]:
    """Return HTML and its status code: 503 where a pipeline could not be read. The page shows the error in its
    place.

    readable_dags: the ids of the DAGs that the viewer may read. Only their pipelines are shown.
    """
    parts = _read_live_parts(readable_dags) if live else _read_parts(readable_dags, live=False)
    page = status_html(parts or [_NONE], live=live, read_at=datetime.now(UTC))
    return page, _UNAVAILABLE if any(isinstance(part, str) for part in parts) else 200


def _read_live_parts(readable_dags: Collection[str]) -> list[Any]:
    with _LIVE.slot() as is_free:
        return _read_parts(readable_dags, live=True) if is_free else [_BUSY]


def _read_parts(readable_dags: Collection[str], *, live: bool) -> list[Any]:
    path = config_path()
    try:
        app = open_app(path)
    except FloodmarkError as error:
        return [str(error)]
    shown = [pipeline for pipeline in app.config.pipelines if dag_id(pipeline) in readable_dags]
    return [_read_part(app, path, pipeline, live=live) for pipeline in shown]


def _read_part(app: AppContext, path: Path, pipeline: str, *, live: bool) -> Any:
    """Return the pipeline's table, or why it cannot be read. The other pipelines are still shown."""
    if not live:
        return _status(app, pipeline, live=False)
    return _LIVE.read((path, pipeline), lambda: _status(app, pipeline, live=True))


def _status(app: AppContext, pipeline: str, *, live: bool) -> Any:
    try:
        return status_table(read_status(app, pipeline, live=live))
    except FloodmarkError as error:
        return f"pipeline {pipeline}: {error}"
