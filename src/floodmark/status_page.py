"""The page *Floodmark status* in Airflow: for who may see Airflow's own pages, what ``floodmark status`` says.

All of Airflow's processes load the plugin; what the page needs is imported for its first reader, in the API server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floodmark.config.models import Config

STATUS_PATH = "/status"
_UNAVAILABLE = 503
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[Mapping[str, Any]]]
_Send = Callable[[Mapping[str, Any]], Awaitable[None]]


async def status_app(scope: _Scope, receive: _Receive, send: _Send) -> None:
    """ASGI, for ``AirflowPlugin.fastapi_apps``."""
    await _made()(scope, receive, send)


@cache
def _made() -> Any:
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView  # noqa: PLC0415
    from airflow.api_fastapi.core_api.security import requires_access_view  # noqa: PLC0415
    from fastapi import Depends, FastAPI  # noqa: PLC0415
    from fastapi.responses import HTMLResponse  # noqa: PLC0415

    app = FastAPI(title="Floodmark", docs_url=None, redoc_url=None, openapi_url=None)
    may_see = Depends(requires_access_view(AccessView.PLUGINS))

    # Not asynchronous: FastAPI runs it in a thread, so that a slow source holds nobody up.
    def status(live: bool = False) -> HTMLResponse:
        page, code = read_page(live=live)
        return HTMLResponse(page, code)

    app.get(STATUS_PATH, dependencies=[may_see])(status)
    return app


def read_page(*, live: bool) -> tuple[str, int]:
    """HTML and its status code: 503 where a pipeline could not be read, which the page then says in its place."""
    from floodmark.config.loading import load_config  # noqa: PLC0415
    from floodmark.console.status_html import status_html  # noqa: PLC0415
    from floodmark.core.errors import FloodmarkError  # noqa: PLC0415
    from floodmark.wiring import config_path  # noqa: PLC0415

    try:
        config = load_config(config_path())
        parts: list[Any] = [_read_part(config, pipeline, live=live) for pipeline in config.pipelines]
    except FloodmarkError as error:
        parts = [error.in_full]
    page = status_html(parts, live=live, read_at=datetime.now(UTC))
    return page, _UNAVAILABLE if any(isinstance(part, str) for part in parts) else 200


def _read_part(config: Config, pipeline: str, *, live: bool) -> Any:
    """The pipeline's table; where it cannot be read, why not: the others are shown all the same."""
    from floodmark.console.tables import status_table  # noqa: PLC0415
    from floodmark.core.errors import FloodmarkError  # noqa: PLC0415
    from floodmark.statuses import read_status  # noqa: PLC0415

    try:
        return status_table(read_status(config, pipeline, live=live))
    except FloodmarkError as error:
        return f"pipeline {pipeline}: {error.in_full}"
