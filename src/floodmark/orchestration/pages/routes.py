"""The pages *Floodmark status* in Airflow: ``floodmark status`` for the pipelines whose DAGs the user may read.

All of Airflow's processes load the plugin. The imports of the pages take about half a second, more with FastAPI and
Airflow's own server. They are done in the API server, at the first request.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from airflow.configuration import conf

if TYPE_CHECKING:
    from floodmark.orchestration.pages.buttons import Rights

STATUS_PATH = "/status"
QUARANTINE_PATH = "/quarantine"
DECISIONS_PATH = "/decisions"
DATA_DOCS_PATH = "/docs"
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[Mapping[str, Any]]]
_Send = Callable[[Mapping[str, Any]], Awaitable[None]]


async def status_app(scope: _Scope, receive: _Receive, send: _Send) -> None:
    """Answer a request. ASGI, for ``AirflowPlugin.fastapi_apps``."""
    await _made()(scope, receive, send)


@cache
def _made() -> Any:
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView  # noqa: PLC0415
    from airflow.api_fastapi.core_api.security import get_user, requires_access_view  # noqa: PLC0415
    from fastapi import Body, Depends, FastAPI, Response  # noqa: PLC0415
    from fastapi.staticfiles import StaticFiles  # noqa: PLC0415

    from floodmark.orchestration.pages.content import (  # noqa: PLC0415
        Answer,
        Query,
        overview,
        pipeline_page,
        quarantine_page,
        table_page,
    )
    from floodmark.orchestration.pages.data_docs import DOCS_POLICY, docs_page  # noqa: PLC0415
    from floodmark.orchestration.pages.decisions import take_decision  # noqa: PLC0415

    app = FastAPI(title="Floodmark", docs_url=None, redoc_url=None, openapi_url=None)
    may_see = Depends(requires_access_view(AccessView.PLUGINS))

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
        return respond(overview(_rights(user), Query(live, q, state, page, format)))

    def one_pipeline(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        pipeline: str,
        user=Depends(get_user),  # noqa: B008
        live: bool = False,
        q: str = "",
        page: int = 1,
        format: str = "",
    ):
        return respond(pipeline_page(_rights(user), pipeline, Query(live, q, "", page, format)))

    def one_table(  # type: ignore[no-untyped-def]
        pipeline: str,
        table: str,
        user=Depends(get_user),  # noqa: B008
        live: bool = False,
        format: str = "",
    ):
        return respond(table_page(_rights(user), pipeline, table, Query(live, format=format)))

    def quarantined(  # type: ignore[no-untyped-def]  # noqa: PLR0917
        pipeline: str,
        table: str,
        user=Depends(get_user),  # noqa: B008
        q: str = "",
        page: int = 1,
        format: str = "",
    ):
        may_read = partial(_may_read_connection, user)
        return respond(quarantine_page(_rights(user), may_read, pipeline, table, Query(False, q, "", page, format)))

    def decided(  # type: ignore[no-untyped-def]
        pipeline: str,
        decision: str,
        body: dict[str, Any] = Body(),  # noqa: B008
        user=Depends(get_user),  # noqa: B008
    ):
        return respond(take_decision(_rights(user), pipeline, decision, body, user.get_name()))

    def data_docs(pipeline: str, page: str, user=Depends(get_user)):  # type: ignore[no-untyped-def]  # noqa: B008
        answer = respond(docs_page(_rights(user), partial(_may_read_connection, user), pipeline, page))
        answer.headers["Content-Security-Policy"] = DOCS_POLICY
        return answer

    _guard(app)
    app.post(f"{DECISIONS_PATH}/{{pipeline}}/{{decision}}", dependencies=[may_see])(decided)
    app.get(STATUS_PATH, dependencies=[may_see])(all_pipelines)
    app.get(f"{STATUS_PATH}/{{pipeline}}", dependencies=[may_see])(one_pipeline)
    # A name may have a slash, which the server has decoded already.
    app.get(f"{STATUS_PATH}/{{pipeline}}/{{table:path}}", dependencies=[may_see])(one_table)
    app.get(f"{QUARANTINE_PATH}/{{pipeline}}/{{table:path}}", dependencies=[may_see])(quarantined)
    app.get(f"{DATA_DOCS_PATH}/{{pipeline}}/{{page:path}}", dependencies=[may_see])(data_docs)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
    return app


# --------------------------------------------------------------------------------------------------------------------
# The rights of a user, by Airflow's authorization manager.


def _rights(user: Any) -> Rights:
    from airflow.api_fastapi.app import get_auth_manager  # noqa: PLC0415

    from floodmark.orchestration.pages.buttons import Rights  # noqa: PLC0415

    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return Rights(set(readable), partial(_may_run, user))


def _may_run(user: Any, dag_id: str) -> bool:
    """Return whether a user may start runs of a DAG: the right that Airflow's own API asks for."""
    from airflow.api_fastapi.app import get_auth_manager  # noqa: PLC0415
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails  # noqa: PLC0415
    from airflow.models.dag import DagModel  # noqa: PLC0415

    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id) if _has_teams() else None)
    manager, entity = get_auth_manager(), DagAccessEntity.RUN
    return bool(manager.is_authorized_dag(method="POST", access_entity=entity, details=details, user=user))


def _may_read_connection(user: Any, conn_id: str) -> bool:
    from airflow.api_fastapi.app import get_auth_manager  # noqa: PLC0415
    from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails  # noqa: PLC0415
    from airflow.models.connection import Connection  # noqa: PLC0415

    details = ConnectionDetails(conn_id=conn_id, team_name=Connection.get_team_name(conn_id) if _has_teams() else None)
    return bool(get_auth_manager().is_authorized_connection(method="GET", details=details, user=user))


def _has_teams() -> bool:
    return bool(conf.getboolean("core", "multi_team", fallback=False))


# --------------------------------------------------------------------------------------------------------------------
# What is true of every request and every answer of the pages.


def _guard(app: Any) -> None:
    """Refuse what other sites send, keep the pages out of their frames, and answer a browser without a login."""
    from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse  # noqa: PLC0415
    from starlette.exceptions import HTTPException  # noqa: PLC0415

    from floodmark.orchestration.pages.content import NotShownError, Query, failure_answer  # noqa: PLC0415
    from floodmark.orchestration.pages.decisions import why_refused  # noqa: PLC0415

    async def guarded(request: Any, call_next: Any) -> Any:
        if request.method not in ("GET", "HEAD"):
            why = why_refused(request.headers, conf.get("api", "base_url", fallback="") or "")
            if why:
                return JSONResponse({"detail": why}, 403)
        answer = await call_next(request)
        # Airflow shows the pages in a frame of its own. In another site's, a button could be clicked unseen.
        answer.headers.setdefault("Content-Security-Policy", "frame-ancestors 'self'")
        return answer

    async def refused(request: Any, error: Any) -> Any:
        """Answer a browser by Airflow's login, or by a page; a script by JSON, as Airflow does."""
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if not is_page or request.query_params.get("format") == "json":
            return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if error.status_code == 401:
            address = f"{_below()}{PAGES_PREFIX}{quote(path)}{'?' if request.url.query else ''}{request.url.query}"
            return RedirectResponse(f"{_below()}/api/v2/auth/login?{urlencode({'next': address})}", 303)
        root = "../" * (path.count("/") - 1)
        refusal = NotShownError(f"Airflow does not show this page: {error.detail}.", error.status_code)
        answer = failure_answer(Query(), refusal, root)
        return HTMLResponse(answer.body, answer.code)

    app.middleware("http")(guarded)
    app.exception_handler(HTTPException)(refused)


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
    status = {
        "name": "Floodmark status",
        "href": f"{_below()}{PAGES_PREFIX}{status_path}",
        "destination": "nav",
        "category": "browse",
        "url_route": "floodmark_status",
    }
    url = os.environ.get(DATA_DOCS_URL_VARIABLE)
    docs = {"name": "Data quality", "href": url, "destination": "nav", "category": "browse"}
    return [status, *([docs] if url else [])]


def _below() -> str:
    """Return the path below which Airflow is served, "" for none. A plugin's link must include it."""
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
