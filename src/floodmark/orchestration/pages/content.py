"""The content of the page *Floodmark status*: every pipeline, or why it cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from floodmark.app.status import read_status
from floodmark.app.status_table import status_table
from floodmark.core.errors import FloodmarkError
from floodmark.orchestration.context import open_app
from floodmark.orchestration.pages.status_html import status_html
from floodmark.wiring.places import config_path

if TYPE_CHECKING:
    from floodmark.app.context import AppContext

_UNAVAILABLE = 503


def read_page(*, live: bool) -> tuple[str, int]:
    """Return HTML and its status code: 503 where a pipeline could not be read. The page shows the error in its
    place."""
    try:
        app = open_app(config_path())
        parts: list[Any] = [_read_part(app, pipeline, live=live) for pipeline in app.config.pipelines]
    except FloodmarkError as error:
        parts = [str(error)]
    page = status_html(parts, live=live, read_at=datetime.now(UTC))
    return page, _UNAVAILABLE if any(isinstance(part, str) for part in parts) else 200


def _read_part(app: AppContext, pipeline: str, *, live: bool) -> Any:
    """Return the pipeline's table, or why it cannot be read. The other pipelines are still shown."""
    try:
        return status_table(read_status(app, pipeline, live=live))
    except FloodmarkError as error:
        return f"pipeline {pipeline}: {error}"
