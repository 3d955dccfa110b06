"""The pages *Floodmark status* in Airflow: ``floodmark status`` for the pipelines whose DAGs the user may read.

All of Airflow's processes load the plugin. The imports of the pages take about half a second, more with FastAPI and
Airflow's own server. They are done in the API server, at the first request.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf

STATUS_PATH = "/status"
QUARANTINE_PATH = "/quarantine"
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[Mapping[str, Any]]]
_Send = Callable[[Mapping[str, Any]], Awaitable[None]]


async def status_app(scope: _Scope, receive: _Receive, send: _Send) -> None:
    """Answer a request. ASGI, for ``AirflowPlugin.fastapi_apps``."""
    await _made()(scope, receive, send)


@cache
def _made() -> Any:
    from airflow.api_fastapi.app import get_auth_manager  # noqa: PLC0415
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, ConnectionDetails  # noqa: PLC0415
    from airflow.api_fastapi.core_api.security import get_user, requires_access_view  # noqa: PLC0415
    from airflow.models.connection import Connection  # noqa: PLC0415
    from fastapi import Depends, FastAPI, Response  # noqa: PLC0415
    from fastapi.staticfiles import StaticFiles  # noqa: PLC0415

    from floodmark.orchestration.pages.content import (  # noqa: PLC0415
        Answer,
        Query,
        overview,
        pipeline_page,
        quarantine_page,
        table_page,
    )

    app = FastAPI(title="Floodmark", docs_url=None, redoc_url=None, openapi_url=None)
    may_see = Depends(requires_access_view(AccessView.PLUGINS))

    def readable(user: Any) -> set[str]:
        return set(get_auth_manager().get_authorized_dag_ids(user=user, method="GET"))

    def may_read_connection(user: Any, conn_id: str) -> bool:
        team = Connection.get_team_name(conn_id) if conf.getboolean("core", "multi_team", fallback=False) else None
        details = ConnectionDetails(conn_id=conn_id, team_name=team)
        return bool(get_auth_manager().is_authorized_connection(method="GET", details=details, user=user))

    def respond(answer: Answer) -> Response:
        return Response(answer.body, answer.code, media_type="application/json" if answer.is_json else "text/html")

    # Not asynchronous: FastAPI runs them in threads, so that a slow source does not block other requests.
    # The user has no annotation: FastAPI would search this module for the name.
    def all_pipelines(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        user=Depends(get_user),  # noqa: B008
        live: bool = False,
        q: str = "",
        state: str = "",
        page: int = 1,
        format: str = "",
    ):
        return respond(overview(readable(user), Query(live, q, state, page, format)))

    def one_pipeline(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        pipeline: str,
        user=Depends(get_user),  # noqa: B008
        live: bool = False,
        q: str = "",
        page: int = 1,
        format: str = "",
    ):
        return respond(pipeline_page(readable(user), pipeline, Query(live, q, "", page, format)))

    def one_table(  # type: ignore[no-untyped-def]
        pipeline: str,
        table: str,
        user=Depends(get_user),  # noqa: B008
        live: bool = False,
        format: str = "",
    ):
        return respond(table_page(readable(user), pipeline, table, Query(live, format=format)))

    def quarantined(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        pipeline: str,
        table: str,
        user=Depends(get_user),  # noqa: B008
        q: str = "",
        page: int = 1,
        format: str = "",
    ):
        may_read = partial(may_read_connection, user)
        return respond(quarantine_page(readable(user), may_read, pipeline, table, Query(False, q, "", page, format)))

    app.get(STATUS_PATH, dependencies=[may_see])(all_pipelines)
    app.get(f"{STATUS_PATH}/{{pipeline}}", dependencies=[may_see])(one_pipeline)
    # A name may have a slash, which the server has decoded already.
    app.get(f"{STATUS_PATH}/{{pipeline}}/{{table:path}}", dependencies=[may_see])(one_table)
    app.get(f"{QUARANTINE_PATH}/{{pipeline}}/{{table:path}}", dependencies=[may_see])(quarantined)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
    return app


# --------------------------------------------------------------------------------------------------------------------
# The entries of Floodmark in Airflow's menu *Browse*: its status page, and the data docs where they are served.


DATA_DOCS_URL_VARIABLE = "FLOODMARK_DATA_DOCS_URL"
PAGES_PREFIX = "/floodmark"
"""The path of Floodmark's own pages at Airflow's API server."""


def external_views(status_path: str) -> list[dict[str, Any]]:
    """Return the entries for ``AirflowPlugin.external_views``.

    The data docs are included where FLOODMARK_DATA_DOCS_URL gives the address at which they are served: a browser
    cannot open a folder of the server.
    """
    # Airflow may be served below a path, which a plugin's link must include.
    below = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    status = {
        "name": "Floodmark status",
        "href": f"{below}{PAGES_PREFIX}{status_path}",
        "destination": "nav",
        "category": "browse",
        "url_route": "floodmark_status",
    }
    url = os.environ.get(DATA_DOCS_URL_VARIABLE)
    docs = {"name": "Data quality", "href": url, "destination": "nav", "category": "browse"}
    return [status, *([docs] if url else [])]
