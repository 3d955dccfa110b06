"""The status pages: all pipelines, one pipeline, its history and its quarantine, as HTML or as JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from floodmark.app.pipeline import config_path
from floodmark.app.status import (
    changed_text,
    duration_text,
    json_text,
    preview_document,
    preview_next_run,
    preview_remarks,
    read_history,
    read_status,
    remarks,
)
from floodmark.core.errors import FloodmarkError, command_line
from floodmark.core.progress import say_waiting
from floodmark.core.schema import TableName
from floodmark.core.status import PipelineStatus, QuarantinedKey, RuleCount, TableWindow
from floodmark.core.upkeep import format_bytes
from floodmark.orchestration.dags.pipelines import dag_id, load_dag_id, switch_dag_id
from floodmark.orchestration.pages.buttons import (
    Rights,
    actions_on,
    close_button,
    discard_button,
    drift_buttons,
    release_button,
    right_of,
)
from floodmark.orchestration.pages.cards import (
    STATES,
    Card,
    DagState,
    card_of,
    page_numbers,
    page_of,
    read_dag_states,
    render,
    rows_of,
    select,
    summary,
)
from floodmark.orchestration.tasks import open_app
from floodmark.sync.preview import RunPreview

if TYPE_CHECKING:
    from floodmark.app.pipeline import Pipeline
    from floodmark.iceberg.metadata import LakeTable


# --------------------------------------------------------------------------------------------------------------------
# The history of a table on its page: its windows in words, and the data of its charts.


_STEPS = (
    ("load", "opened_at", "merged_at"),
    ("check", "merged_at", "checked_at"),
    ("publish", "checked_at", "advanced_at"),
)
_OPERATIONS = ("inserted", "updated", "deleted")
_MEASURES = (
    ("lag_seconds", "Lag at publication", "s"),
    ("margin_seconds", "Margin before cleanup", "s"),
    ("change_bytes", "Size of the change tables", "B"),
    ("change_rows", "Rows of the change tables", "rows"),
)


_MEASURED = {"Lag": "lag", "Margin": "margin", "Change tables": "change_table"}
"""The columns that the page has if a window has a value."""


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A window, in words. A value that is unknown, or not known yet, is empty."""

    number: str
    kind: str
    state: str
    opened_at: str
    load: str
    check: str
    publish: str
    read: str
    changed: str
    quarantined: str
    lag: str
    margin: str
    change_table: str
    dag_id: str
    run_id: str
    """Empty where no run of Airflow worked on the window."""


def window_rows(windows: Sequence[TableWindow]) -> list[WindowRow]:
    """Return the windows, the newest first."""
    return [_row(each) for each in reversed(windows)]


def charts_of(windows: Sequence[TableWindow]) -> list[dict[str, Any]]:
    """Return the charts as the page's script takes them. Only published windows are in them.

    Each has ``title``, ``unit``, ``times`` (ISO 8601, UTC), and ``series``: ``name``, ``color`` (a variable of the
    style) and ``values``, one for each window, None for a gap. A chart without any value is left out.
    """
    done = [each for each in windows if each.advanced_at is not None]
    rows = {name: [getattr(each, f"{name}_rows") for each in done] for name in _OPERATIONS}
    seconds = {name: [_seconds(each, since, until) for each in done] for name, since, until in _STEPS}
    times = [each.opened_at.isoformat() for each in done]
    charts = [
        _chart("Rows of each window", "rows", times, rows, 0),
        _chart("Duration of each window", "s", times, seconds, len(rows)),
    ]
    for color, (field, title, unit) in enumerate(_MEASURES, len(rows) + len(seconds)):
        values = [getattr(each, field) for each in done]
        if any(value is not None for value in values):
            charts.append(_chart(title, unit, times, {title.lower(): values}, color))
    return charts


def _chart(title: str, unit: str, times: Sequence[str], values: dict[str, list[Any]], first: int) -> dict[str, Any]:
    series = [
        {"name": name, "color": f"--chart-{number}", "values": each}
        for number, (name, each) in enumerate(values.items(), first)
    ]
    return {"title": title, "unit": unit, "times": times, "series": series}


def _row(window: TableWindow) -> WindowRow:
    took = {name: _step_text(window, since, until) for name, since, until in _STEPS}
    lane = f", {window.lane}" if window.lane else ""
    return WindowRow(
        number=f"{window.window_id}",
        kind=f"{window.kind.replace('_', ' ')}{lane}",
        state="published" if window.state == "advanced" else f"{window.state}, attempt {window.attempt}",
        opened_at=f"{window.opened_at:%Y-%m-%d %H:%M:%S}",
        read=f"{window.read_rows:,}",
        changed=changed_text(window.inserted_rows, window.updated_rows, window.deleted_rows),
        quarantined=f"{window.quarantined_rows:,}" if window.quarantined_rows else "",
        lag=_seconds_text(window.lag_seconds if window.state == "advanced" else None),
        margin="" if window.margin_seconds is None else duration_text(window.margin_seconds),
        change_table=_change_table(window),
        dag_id=window.dag_id or "",
        run_id=window.run_id or "",
        **took,
    )


def _step_text(window: TableWindow, since: str, until: str) -> str:
    return _seconds_text(_seconds(window, since, until))


def _change_table(window: TableWindow) -> str:
    parts = [] if window.change_rows is None else [f"{window.change_rows:,} rows"]
    parts += [] if window.change_bytes is None else [format_bytes(window.change_bytes)]
    return ", ".join(parts)


def _seconds_text(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds)


def _seconds(window: TableWindow, since: str, until: str) -> float | None:
    begun: datetime | None = getattr(window, since)
    ended: datetime | None = getattr(window, until)
    return None if begun is None or ended is None else round((ended - begun).total_seconds(), 3)


# --------------------------------------------------------------------------------------------------------------------
# Reads of the sources for the status page: each pipeline's at most once in some seconds, and few at a time.
#
# Every viewer may ask for the current state, and each answer costs the source some statements.


KEPT_SECONDS = 15.0
AT_ONCE = 4
"""The most requests that wait for sources in a process of Airflow's API server, which has few threads."""


class LiveReads:
    """The results of the latest reads by key, each shared by all who ask while it is new."""

    def __init__(self, kept_seconds: float = KEPT_SECONDS, at_once: int = AT_ONCE) -> None:
        self._kept_seconds = kept_seconds
        self._slots = threading.BoundedSemaphore(at_once)
        self._guard = threading.Lock()
        self._locks: dict[object, threading.Lock] = {}
        self._kept: dict[object, tuple[float, Any]] = {}

    @contextmanager
    def slot(self) -> Iterator[bool]:
        """Take a place for one request. False where all are taken: it must not read."""
        taken = self._slots.acquire(blocking=False)
        try:
            yield taken
        finally:
            if taken:
                self._slots.release()

    def read(self, key: object, read: Callable[[], Any]) -> Any:
        """Return what ``read`` returned for the key a few seconds ago, or read now. An exception is not kept."""
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            at, found = self._kept.get(key, (float("-inf"), None))
            if time.monotonic() - at >= self._kept_seconds:
                found = read()
                self._kept[key] = (time.monotonic(), found)
            return found

    def forget(self, key: object) -> None:
        """Let the next ``read`` of a key read."""
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            self._kept.pop(key, None)


# --------------------------------------------------------------------------------------------------------------------
# The content of the status pages: all pipelines of a viewer, or one with its tables, as HTML or as JSON.


CARDS_OF_A_PAGE, ROWS_OF_A_PAGE, WINDOWS_OF_A_PAGE = 30, 100, 60
NOT_FOUND, _UNAVAILABLE = 404, 503
_NONE = "There is no pipeline whose DAG you may read."
_UNKNOWN = "There is no pipeline of that name whose DAG you may read."
UNKNOWN_TABLE = "There is no table of that name in a pipeline whose DAG you may read."
_BUSY = "Other requests are waiting for the sources. Try again in some seconds."
_LIVE = LiveReads()
_PLAN = "plan"
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


def overview(rights: Rights, query: Query) -> Answer:
    """Return the page of the pipelines of a viewer: those whose DAGs the viewer may read."""
    try:
        app = open_app(config_path())
        found = _read(
            [each for each in app.pipelines.values() if dag_id(each.name) in rights.readable_dags], live=query.live
        )
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
    return Answer(html("overview.html", query, "", **values), code)


def pipeline_page(rights: Rights, pipeline: str, query: Query) -> Answer:
    """Return the page of one pipeline with its tables. The parameters are those of ``overview``."""
    try:
        opened = open_named(rights.readable_dags, pipeline)
        found = _read_shown(opened, live=query.live)
    except (FloodmarkError, NotShownError) as failure:
        return failure_answer(query, failure, "../")
    plan = _read_plan(opened) if query.live else None
    if query.format == "json":
        return _json([_document(found.card, found.status) | _plan_document(plan)], query)
    rows = rows_of(found.status.tables, query.text)
    may_close = rights.may_run(right_of("close", pipeline, opened.config.source))
    values = {
        "card": found.card,
        "alerts": [(each, close_button(pipeline, each.key) if may_close else None) for each in found.status.alerts],
        "notes": remarks(replace(found.status, alerts=())),
        "plan": plan,
        "plan_remarks": preview_remarks(plan) if isinstance(plan, RunPreview) else [],
        "total": len(found.status.tables),
        "page": page_of(rows, query.page, ROWS_OF_A_PAGE),
        "has_margins": any(row.margin for row in rows),
        "dags": _dags(pipeline, rights.readable_dags),
        "has_docs": opened.data_docs.has(pipeline),
    }
    return Answer(html("pipeline.html", query, "../", **values))


def table_page(rights: Rights, pipeline: str, table: str, query: Query) -> Answer:
    """Return the page of a table with its history. table: its name as the configuration spells it."""
    try:
        opened = open_named(rights.readable_dags, pipeline)
        found = _read_shown(opened, live=query.live)
        status = next((each for each in found.status.tables if each.source == table), None)
        if status is None:
            raise NotShownError(UNKNOWN_TABLE, NOT_FOUND)
        history = read_history(opened, TableName.parse(table), WINDOWS_OF_A_PAGE)
        windows = tuple(_without_hidden_run(each, rights.readable_dags) for each in history.windows)
        history = replace(history, windows=windows)
        lake = opened.app.read_lake_table(TableName.parse(status.target))
    except (FloodmarkError, NotShownError) as failure:
        return failure_answer(query, failure, "../../")
    if query.format == "json":
        about: dict[str, Any] = {"pipeline": pipeline, "table": asdict(status), "history": asdict(history)}
        about |= {"lake": lake and _lake_document(lake)} if opened.app.is_lake else {}
        return Answer(json_text({"read_at": datetime.now(UTC), "live": query.live} | about), is_json=True)
    rows = window_rows(history.windows)
    switch_dag = switch_dag_id(opened.config.source)
    dags = read_dag_states([dag_id(pipeline), load_dag_id(pipeline)])
    may_decide = rights.may_run(right_of("approve", pipeline, opened.config.source))
    values = {
        "pipeline": pipeline,
        "row": rows_of([status], "")[0],
        "cause": f"{status.cause} {status.hint}".strip(),
        "history": history,
        "lake": lake,
        "is_lake": opened.app.is_lake,
        "windows": rows,
        "measured": {name: field for name, field in _MEASURED.items() if any(getattr(each, field) for each in rows)},
        "charts": charts_of(history.windows),
        "dags": _dags(pipeline, rights.readable_dags),
        "has_docs": opened.data_docs.has(pipeline),
        "actions": actions_on(
            pipeline,
            table,
            rights,
            has_history=opened.source.has_history,
            is_scheduled=opened.config.schedule is not None,
            paused_dags={name for name, each in dags.items() if each.is_paused},
        ),
        "drift_buttons": lambda note: drift_buttons(pipeline, note) if may_decide else [],
        "switch_dag": switch_dag if switch_dag in rights.readable_dags else "",
    }
    return Answer(html("table.html", query, "../../", **values))


def _lake_document(table: LakeTable) -> dict[str, Any]:
    """Return the files of a table of a lake as programs read them, in JSON."""
    names = ("snapshot", "location", "rows", "deleted_rows", "files", "delete_files", "size", "is_due")
    return {name: getattr(table, name) for name in names} | {"snapshots": len(table.snapshots)}


def open_named(readable_dags: Collection[str], pipeline: str) -> Pipeline:
    """Return a pipeline that a viewer may see. Raises ``NotShownError``, or ``FloodmarkError``."""
    found = open_app(config_path()).pipelines.get(pipeline)
    if found is None or dag_id(pipeline) not in readable_dags:
        raise NotShownError(_UNKNOWN, NOT_FOUND)
    return found


def _read_shown(pipeline: Pipeline, *, live: bool) -> _ReadStatus:
    """Return a pipeline that was read. Raises ``NotShownError`` where it cannot be shown."""
    found = _read([pipeline], live=live)[0]
    if found.status is None:
        raise NotShownError(found.card.error, _UNAVAILABLE)
    return _ReadStatus(found.card, found.status)


def _without_hidden_run(window: TableWindow, readable_dags: Collection[str]) -> TableWindow:
    return window if window.dag_id in readable_dags else replace(window, dag_id=None, run_id=None)


def _dags(pipeline: str, readable_dags: Collection[str]) -> list[str]:
    return [each for each in (dag_id(pipeline), load_dag_id(pipeline)) if each in readable_dags]


def _read(pipelines: Sequence[Pipeline], *, live: bool) -> list[_Read]:
    dags = read_dag_states([dag_id(pipeline.name) for pipeline in pipelines])
    if not live:
        return [_read_one(pipeline, dags, live=False) for pipeline in pipelines]
    with _LIVE.slot() as is_free:
        if is_free:
            return [_read_one(pipeline, dags, live=True) for pipeline in pipelines]
    return [_Read(Card(pipeline.name, "unreadable", _BUSY), None) for pipeline in pipelines]


def _read_one(pipeline: Pipeline, dags: Mapping[str, DagState], *, live: bool) -> _Read:
    """Read a pipeline, or why it cannot be read. The others are still shown."""
    reads = _LIVE if live else _LEDGER
    status = reads.read((config_path(), pipeline.name), lambda: _status(pipeline, live=live))
    if isinstance(status, str):
        return _Read(Card(pipeline.name, "unreadable", status), None)
    state, max_lag = dags.get(dag_id(pipeline.name)), pipeline.config.max_lag
    return _Read(card_of(status, state, max_lag, datetime.now(UTC)), status)


def _read_plan(pipeline: Pipeline) -> RunPreview | str:
    """Return what the next run does by the configuration as it is now, or why that is not known."""
    with _LIVE.slot() as is_free:
        if not is_free:
            return _BUSY
        plan: RunPreview | str = _LIVE.read((config_path(), pipeline.name, _PLAN), lambda: _plan(pipeline))
        return plan


def _plan(pipeline: Pipeline) -> RunPreview | str:
    try:
        return preview_next_run(pipeline)
    except FloodmarkError as error:
        return str(error)


def _plan_document(plan: RunPreview | str | None) -> dict[str, Any]:
    if plan is None:
        return {}
    return {"plan": {"error": plan} if isinstance(plan, str) else preview_document(plan)}


def forget_status(pipeline: str) -> None:
    """Let the next page of a pipeline read it again, because a decision has changed it."""
    for reads in (_LIVE, _LEDGER):
        reads.forget((config_path(), pipeline))
    _LIVE.forget((config_path(), pipeline, _PLAN))


def _status(pipeline: Pipeline, *, live: bool) -> PipelineStatus | str:
    try:
        return read_status(pipeline, live=live)
    except FloodmarkError as error:
        return str(error)


def _document(card: Card, status: PipelineStatus | None) -> dict[str, Any]:
    if status is None:
        return {"pipeline": card.pipeline, "state": card.state, "error": card.error}
    return {"state": card.state, "next_run": card.next_run} | asdict(status)


def _json(pipelines: list[dict[str, Any]], query: Query, code: int = 200, error: str = "") -> Answer:
    document = {"read_at": datetime.now(UTC), "live": query.live, "error": error, "pipelines": pipelines}
    return Answer(json_text(document), code, is_json=True)


def failure_answer(query: Query, failure: Exception, root: str) -> Answer:
    """Return the page of a failure. root: see ``html``."""
    code = failure.code if isinstance(failure, NotShownError) else _UNAVAILABLE
    if query.format == "json":
        return _json([], query, code, str(failure))
    return Answer(html("failure.html", query, root, error=str(failure)), code)


def html(template: str, query: Query, root: str, **values: Any) -> str:
    """Return a page, with what each of them has in its foot. root: the way from its address to that of the pages."""
    read_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    return render(template, query=query, root=root, live=query.live, link=query.link, read_at=read_at, **values)


# --------------------------------------------------------------------------------------------------------------------
# The rows of a table in quarantine. Their keys are values of rows: they are read for those alone who may see them.
#
# That right is to read the warehouse's connection in Airflow: its roles give it to operators and administrators, and an
# authorization manager can give it to others for this one connection.


KEYS_OF_A_PAGE = 100


def quarantine_page(
    rights: Rights,
    may_read_connection: Callable[[str], bool],
    pipeline: str,
    table: str,
    query: Query,
) -> Answer:
    """Return the page of a table's rows in quarantine.

    table: its name as the configuration spells it. query.text: the one rule whose rows are listed, "" for all.
    may_read_connection: whether the viewer may read a connection of Airflow, by its id.
    """
    try:
        opened = open_named(rights.readable_dags, pipeline)
        ledger, conn_id = opened.app.status_ledger, opened.app.config.warehouse.conn_id
        if table not in set(map(str, opened.settings.sources)):
            raise NotShownError(UNKNOWN_TABLE, NOT_FOUND)
        name = TableName.parse(table)
        rules = [each for each in ledger.list_quarantined(pipeline) if each.table == table]
        waiting = ledger.count_waiting(pipeline, name)
        number, count = page_numbers(_rows_of(rules, query.text), query.page, KEYS_OF_A_PAGE)
        keys: Sequence[QuarantinedKey] | None = None
        if may_read_connection(conn_id):
            skipped = (number - 1) * KEYS_OF_A_PAGE
            keys = ledger.list_quarantined_keys(
                pipeline, name, query.text or None, skipped=skipped, at_most=KEYS_OF_A_PAGE
            )
    except (FloodmarkError, NotShownError) as failure:
        return failure_answer(query, failure, "../../")
    if query.format == "json":
        rows = None if keys is None else [asdict(each) for each in keys]
        about = {"pipeline": pipeline, "table": table, "waiting_rows": waiting}
        about |= {"rules": [asdict(each) for each in rules], "rows": rows}
        return Answer(json_text({"read_at": datetime.now(UTC)} | about), is_json=True)
    # A release in a lake starts a Spark, which is no work of Airflow's API server.
    buttons = [] if opened.app.is_lake else [release_button(pipeline, table)]
    buttons.append(discard_button(pipeline, table, query.text))
    values = {
        "pipeline": pipeline,
        "table": table,
        "buttons": buttons if rights.may_run(right_of("release", pipeline, opened.config.source)) else [],
        "waiting": say_waiting(waiting),
        "rules": rules,
        "keys": keys,
        "key_text": _key_text,
        "page": {"number": number, "count": count},
        "release": command_line("quarantine", "release", pipeline, table),
        "discard": command_line("quarantine", "discard", pipeline, table),
        "connection": conn_id,
    }
    return Answer(html("quarantine.html", query, "../../", **values))


def _rows_of(rules: Sequence[RuleCount], rule: str) -> int:
    return sum(each.rows for each in rules if not rule or each.rule == rule)


def _key_text(key: QuarantinedKey) -> str:
    """Return the values of a key as a page shows them: a text without quotes where it is the only value."""
    if len(key.key) == 1 and isinstance(key.key[0], str):
        return key.key[0]
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in key.key)
