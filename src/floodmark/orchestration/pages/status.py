"""The page *Floodmark status* in Airflow: the output of ``floodmark status``, for users who may see Airflow's pages.

All of Airflow's processes load the plugin. The imports of the page take about half a second, more with FastAPI and
Airflow's own server. They are done in the API server, at the first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cache
from typing import Any

STATUS_PATH = "/status"
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[Mapping[str, Any]]]
_Send = Callable[[Mapping[str, Any]], Awaitable[None]]


async def status_app(scope: _Scope, receive: _Receive, send: _Send) -> None:
    """Answer a request. ASGI, for ``AirflowPlugin.fastapi_apps``."""
    await _made()(scope, receive, send)


@cache
def _made() -> Any:
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView  # noqa: PLC0415
    from airflow.api_fastapi.core_api.security import requires_access_view  # noqa: PLC0415
    from fastapi import Depends, FastAPI  # noqa: PLC0415
    from fastapi.responses import HTMLResponse  # noqa: PLC0415

    from floodmark.orchestration.pages.content import read_page  # noqa: PLC0415

    app = FastAPI(title="Floodmark", docs_url=None, redoc_url=None, openapi_url=None)
    may_see = Depends(requires_access_view(AccessView.PLUGINS))

    # Not asynchronous: FastAPI runs it in a thread, so that a slow source does not block other requests.
    def status(live: bool = False) -> HTMLResponse:
        page, code = read_page(live=live)
        return HTMLResponse(page, code)

    app.get(STATUS_PATH, dependencies=[may_see])(status)
    return app
