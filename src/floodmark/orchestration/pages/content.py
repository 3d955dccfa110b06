"""The content of the status pages: all pipelines of a viewer, or one with its tables, as HTML or as JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from floodmark.app.replay import can_replay
from floodmark.app.status import read_history, read_status
from floodmark.app.status_json import json_text
from floodmark.app.status_texts import remarks
from floodmark.core.errors import FloodmarkError
from floodmark.core.schema import TableName
from floodmark.core.status.history import TableWindow
from floodmark.core.status.report import PipelineStatus
from floodmark.orchestration.context import open_app
from floodmark.orchestration.dags.cdc import dag_id
from floodmark.orchestration.dags.load import load_dag_id
from floodmark.orchestration.dags.switch import switch_dag_id
from floodmark.orchestration.pages.actions import actions_on, approval_params
from floodmark.orchestration.pages.cards import STATES, Card, card_of, select, summary
from floodmark.orchestration.pages.dag_states import DagState, read_dag_states
from floodmark.orchestration.pages.history import charts_of, window_rows
from floodmark.orchestration.pages.live_reads import LiveReads
from floodmark.orchestration.pages.paging import page_of
from floodmark.orchestration.pages.rendering import render
from floodmark.orchestration.pages.rows import rows_of
from floodmark.wiring.places import config_path

if TYPE_CHECKING:
    from floodmark.app.context import AppContext

CARDS_OF_A_PAGE, ROWS_OF_A_PAGE, WINDOWS_OF_A_PAGE = 30, 100, 60
NOT_FOUND, _UNAVAILABLE = 404, 503
_NONE = "There is no pipeline whose DAG you may read."
_UNKNOWN = "There is no pipeline of that name whose DAG you may read."
UNKNOWN_TABLE = "There is no table of that name in a pipeline whose DAG you may read."
_BUSY = "Other requests are waiting for the sources. Try again in some seconds."
_LIVE = LiveReads()
# Of the ledger: 100 pipelines of 100 tables take seconds, and searching them should not.
_LEDGER = LiveReads(kept_seconds=5.0)


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a page's address.

    live: whether the sources are queried. text: part of the names that are shown. state: of the cards that are shown.
    format: "json", otherwise HTML.
    """

    live: bool = False
    text: str = ""
    state: str = ""
    page: int = 1
    format: str = ""

    def link(self, **changes: Any) -> str:
        """Return the address of the same page with other parameters; None leaves one out."""
        own = {"live": "true" if self.live else None, "q": self.text, "state": self.state, "page": None}
        return "?" + urlencode({name: value for name, value in (own | changes).items() if value})


@dataclass(frozen=True, slots=True)
class Answer:
    """code: 503 where a pipeline could not be read, which the page shows in its place."""

    body: str
    code: int = 200
    is_json: bool = False


class _Read(NamedTuple):
    """status: None where the pipeline could not be read."""

    card: Card
    status: PipelineStatus | None


class _ReadStatus(NamedTuple):
    card: Card
    status: PipelineStatus


class NotShownError(Exception):
    """A page that is not shown. code: of the answer."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def overview(readable_dags: Collection[str], query: Query) -> Answer:
    """Return the page of the pipelines of a viewer.

    readable_dags: the ids of the DAGs that the viewer may read. Only their pipelines are shown.
    """
    try:
        app = open_app(config_path())
        shown = [pipeline for pipeline in app.config.pipelines if dag_id(pipeline) in readable_dags]
        found = _read(app, shown, live=query.live)
        error = ""
        code = _UNAVAILABLE if any(each.status is None for each in found) else 200
    except FloodmarkError as failure:
        found, error, code = [], str(failure), _UNAVAILABLE
    if query.format == "json":
        return _json([_document(*each) for each in found], query, code, error)
    cards = [each.card for each in found]
    page = page_of(select(cards, query.text, query.state), query.page, CARDS_OF_A_PAGE)
    values = {"summary": summary(cards) if cards else "", "error": error, "states": STATES, "page": page}
    values |= {"total": len(cards), "nothing": "" if cards or error else _NONE}
    return Answer(html("overview.html", query, **values), code)


def pipeline_page(readable_dags: Collection[str], pipeline: str, query: Query) -> Answer:
    """Return the page of one pipeline with its tables. The parameters are those of ``overview``."""
    try:
        _, found = _read_named(readable_dags, pipeline, live=query.live)
    except (FloodmarkError, NotShownError) as failure:
        return failure_answer(query, failure, "../status")
    if query.format == "json":
        return _json([_document(found.card, found.status)], query)
    values = {
        "card": found.card,
        "alerts": found.status.alerts,
        "notes": remarks(replace(found.status, alerts=())),
        "total": len(found.status.tables),
        "page": page_of(rows_of(found.status.tables, query.text), query.page, ROWS_OF_A_PAGE),
        "dags": _dags(pipeline, readable_dags),
    }
    return Answer(html("pipeline.html", query, **values))


def table_page(readable_dags: Collection[str], pipeline: str, table: str, query: Query) -> Answer:
    """Return the page of a table with its history. table: its name as the configuration spells it."""
    try:
        app, found = _read_named(readable_dags, pipeline, live=query.live)
        status = next((each for each in found.status.tables if each.source == table), None)
        if status is None:
            raise NotShownError(UNKNOWN_TABLE, NOT_FOUND)
        history = read_history(app, pipeline, TableName.parse(table), WINDOWS_OF_A_PAGE)
        history = replace(history, windows=tuple(_without_hidden_run(each, readable_dags) for each in history.windows))
    except (FloodmarkError, NotShownError) as failure:
        return failure_answer(query, failure, "../../status")
    if query.format == "json":
        about = {"pipeline": pipeline, "table": asdict(status), "history": asdict(history)}
        return Answer(json_text({"read_at": datetime.now(UTC), "live": query.live} | about), is_json=True)
    switch_dag = switch_dag_id(app.config.pipeline(pipeline).source)
    values = {
        "pipeline": pipeline,
        "row": rows_of([status], "")[0],
        "cause": f"{status.cause} {status.hint}".strip(),
        "history": history,
        "windows": window_rows(history.windows),
        "charts": charts_of(history.windows),
        "dags": _dags(pipeline, readable_dags),
        "actions": actions_on(
            pipeline,
            table,
            readable_dags,
            has_history=can_replay(app, pipeline),
            is_scheduled=app.config.pipeline(pipeline).schedule is not None,
        ),
        "approval_params": approval_params,
        "switch_dag": switch_dag if switch_dag in readable_dags else "",
    }
    return Answer(html("table.html", query, **values))


def open_named(readable_dags: Collection[str], pipeline: str) -> AppContext:
    """Return the context of a pipeline that a viewer may see. Raises ``NotShownError``, or ``FloodmarkError``."""
    app = open_app(config_path())
    if pipeline not in app.config.pipelines or dag_id(pipeline) not in readable_dags:
        raise NotShownError(_UNKNOWN, NOT_FOUND)
    return app


def _read_named(readable_dags: Collection[str], pipeline: str, *, live: bool) -> tuple[AppContext, _ReadStatus]:
    """Return a pipeline that was read. Raises ``NotShownError`` or ``FloodmarkError`` where it cannot be shown."""
    app = open_named(readable_dags, pipeline)
    found = _read(app, [pipeline], live=live)[0]
    if found.status is None:
        raise NotShownError(found.card.error, _UNAVAILABLE)
    return app, _ReadStatus(found.card, found.status)


def _without_hidden_run(window: TableWindow, readable_dags: Collection[str]) -> TableWindow:
    return window if window.dag_id in readable_dags else replace(window, dag_id=None, run_id=None)


def _dags(pipeline: str, readable_dags: Collection[str]) -> list[str]:
    return [each for each in (dag_id(pipeline), load_dag_id(pipeline)) if each in readable_dags]


def _read(app: AppContext, pipelines: Sequence[str], *, live: bool) -> list[_Read]:
    dags = read_dag_states([dag_id(pipeline) for pipeline in pipelines])
    if not live:
        return [_read_one(app, pipeline, dags, live=False) for pipeline in pipelines]
    with _LIVE.slot() as is_free:
        if is_free:
            return [_read_one(app, pipeline, dags, live=True) for pipeline in pipelines]
    return [_Read(Card(pipeline, "unreadable", _BUSY), None) for pipeline in pipelines]


def _read_one(app: AppContext, pipeline: str, dags: Mapping[str, DagState], *, live: bool) -> _Read:
    """Read a pipeline, or why it cannot be read. The others are still shown."""
    reads = _LIVE if live else _LEDGER
    status = reads.read((config_path(), pipeline), lambda: _status(app, pipeline, live=live))
    if isinstance(status, str):
        return _Read(Card(pipeline, "unreadable", status), None)
    max_lag = app.config.pipeline(pipeline).max_lag
    return _Read(card_of(status, dags.get(dag_id(pipeline)), max_lag, datetime.now(UTC)), status)


def _status(app: AppContext, pipeline: str, *, live: bool) -> PipelineStatus | str:
    try:
        return read_status(app, pipeline, live=live)
    except FloodmarkError as error:
        return str(error)


def _document(card: Card, status: PipelineStatus | None) -> dict[str, Any]:
    if status is None:
        return {"pipeline": card.pipeline, "state": card.state, "error": card.error}
    return {"state": card.state, "next_run": card.next_run} | asdict(status)


def _json(pipelines: list[dict[str, Any]], query: Query, code: int = 200, error: str = "") -> Answer:
    document = {"read_at": datetime.now(UTC), "live": query.live, "error": error, "pipelines": pipelines}
    return Answer(json_text(document), code, is_json=True)


def failure_answer(query: Query, failure: Exception, up: str) -> Answer:
    """Return the page of a failure. up: the address of the page of all pipelines."""
    code = failure.code if isinstance(failure, NotShownError) else _UNAVAILABLE
    if query.format == "json":
        return _json([], query, code, str(failure))
    return Answer(html("failure.html", query, error=str(failure), up=up), code)


def html(template: str, query: Query, **values: Any) -> str:
    """Return a page, with what each of them has in its foot."""
    read_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    return render(template, query=query, live=query.live, link=query.link, read_at=read_at, **values)
