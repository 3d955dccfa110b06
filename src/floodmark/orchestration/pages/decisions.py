"""The decisions that an operator makes by a button of the status pages, and what a request needs to be one.

They are those of the commands, by the same use cases, in the name of Airflow's user.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from floodmark.app.alerts import close_alert, list_open_alerts
from floodmark.app.operate import approve_switch, discard_rows, is_proposal, reject_switch, release_rows
from floodmark.app.upkeep import approve_drift, list_drift
from floodmark.core.errors import FloodmarkError, OperatorError, command_line
from floodmark.orchestration.pages.buttons import Rights, right_of
from floodmark.orchestration.pages.content import NOT_FOUND, Answer, NotShownError, forget_status, open_named

if TYPE_CHECKING:
    from floodmark.app.pipeline import Pipeline
    from floodmark.sync.records import DriftEvent

_BAD, _FORBIDDEN, _CONFLICT, _UNAVAILABLE = 400, 403, 409, 503


def why_refused(headers: Mapping[str, str], own_address: str) -> str:
    """Return why a request is not from a script of these pages; "" where it is.

    headers: by names in lower case. own_address: of Airflow as configured, "" where it is not.

    The session's cookie comes along with whatever a browser sends. Another site cannot send JSON without asking first,
    and browsers say where a request comes from: by ``Sec-Fetch-Site``, over plain HTTP by ``Origin`` alone.
    """
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return "A decision is sent as JSON."
    site, origin = headers.get("sec-fetch-site"), urlsplit(headers.get("origin", "")).netloc
    is_own = (
        site == "same-origin" if site is not None else origin in {headers.get("host"), urlsplit(own_address).netloc}
    )
    return "" if is_own and origin else "A decision is sent by the status pages alone."


def take_decision(rights: Rights, pipeline: str, decision: str, body: Mapping[str, Any], by: str) -> Answer:
    """Carry out a decision about a pipeline. Return a sentence on what was done, or why it was not, as JSON.

    decision: a key of ``_DECISIONS``. body: what its button sends. by: the user of Airflow.
    """
    try:
        opened = open_named(rights.readable_dags, pipeline)
        made = _DECISIONS.get(decision)
        if made is None:
            raise NotShownError("There is no such decision.", NOT_FOUND)
        right = right_of(decision, pipeline, opened.config.source)
        if not rights.may_run(right):
            raise NotShownError(f"It needs the right to trigger the DAG {right}.", _FORBIDDEN)
        done = made(opened, body, by)
    except NotShownError as refused:
        return _answer(refused.code, detail=str(refused))
    except FloodmarkError as error:
        return _answer(_UNAVAILABLE if error.retryable else _CONFLICT, detail=str(error))
    forget_status(pipeline)
    return _answer(200, done=done)


def _answer(code: int, **document: str) -> Answer:
    return Answer(json.dumps(document), code, is_json=True)


def _value(body: Mapping[str, Any], name: str) -> Any:
    if name not in body:
        raise NotShownError(f"The request lacks {name}.", _BAD)
    return body[name]


def _close(pipeline: Pipeline, body: Mapping[str, Any], by: str) -> str:
    about = (pipeline.name, pipeline.config.source)
    keys = {each.alert.event_key for each in list_open_alerts(pipeline.app) if each.alert.subject in about}
    if _value(body, "alert") not in keys:
        raise NotShownError("The alert is no longer open.", NOT_FOUND)
    close_alert(pipeline.app, _value(body, "alert"), str(_value(body, "reason")), by)
    return "The alert is closed."


def _release(pipeline: Pipeline, body: Mapping[str, Any], by: str) -> str:
    table = str(_value(body, "table"))
    if pipeline.app.is_lake:
        command = command_line("quarantine", "release", pipeline.name, table)
        raise OperatorError(table, "a release in a lake starts a Spark, which the pages do not.", f"Run: {command}")
    found = release_rows(pipeline, table, by)
    remaining = sum(found.remaining.values())
    return (
        f"Released: {found.released:,}. Overtaken by later changes: {found.overtaken:,}. Still waiting: {remaining:,}."
    )


def _discard(pipeline: Pipeline, body: Mapping[str, Any], by: str) -> str:
    count = discard_rows(pipeline, str(_value(body, "table")), str(_value(body, "rule")) or None, by)
    return f"Entries discarded: {count:,}."


def _approve(pipeline: Pipeline, body: Mapping[str, Any], by: str) -> str:
    event = _event_of(pipeline, body)
    if is_proposal(pipeline.app, event.event_id):
        return approve_switch(pipeline.app, event.event_id, by)
    approve_drift(pipeline.app, event.event_id, by)
    held = f" {event.table} continues in {', '.join(event.held)}." if event.held else ""
    return f"Event {event.event_id} is acknowledged.{held}"


def _reject(pipeline: Pipeline, body: Mapping[str, Any], by: str) -> str:
    return reject_switch(pipeline.app, _event_of(pipeline, body).event_id, by)


def _event_of(pipeline: Pipeline, body: Mapping[str, Any]) -> DriftEvent:
    """Return the undecided event of a decision. Raises OperatorError where the user has read another proposal."""
    tables = {each.folded for each in pipeline.settings.sources}
    found = next(
        (
            each
            for each in list_drift(pipeline.app, everything=False)
            if (each.event_id, each.source) == (_value(body, "event_id"), pipeline.config.source)
            and each.table.folded in tables
        ),
        None,
    )
    if found is None:
        raise NotShownError("The event is decided already.", NOT_FOUND)
    if found.proposal != _value(body, "proposal"):
        raise OperatorError(
            f"drift event {found.event_id}", "its proposal has changed since the page was read.", "Read it again."
        )
    return found


_DECISIONS: Mapping[str, Callable[[Pipeline, Mapping[str, Any], str], str]] = {
    "close": _close,
    "release": _release,
    "discard": _discard,
    "approve": _approve,
    "reject": _reject,
}
