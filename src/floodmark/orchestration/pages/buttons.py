"""The actions of the status pages: what an operator does by a button, by a DAG of Airflow, or by a command.

A button is a form that the page's script sends as JSON with the cookie of the user's session. Reload and replay go to
Airflow's own API, which starts a run of a DAG; the other decisions go to the routes of ``decisions.py``. The viewer who
lacks the right sees no button, and is refused all the same. Without a script, the page has the DAG and the command.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from floodmark.core.errors import command_line
from floodmark.orchestration.dags.pipelines import dag_id, drift_dag_id, load_dag_id

if TYPE_CHECKING:
    from floodmark.core.status import DriftNote


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a viewer in Airflow.

    readable_dags: the ids of the DAGs that the viewer may read. may_run: whether the viewer may start runs of a DAG.
    """

    readable_dags: Collection[str]
    may_run: Callable[[str], bool] = lambda _: False


class Field(NamedTuple):
    """A field of a button's form. kind: of HTML's ``input``; a ``datetime-local`` is in UTC."""

    name: str
    label: str
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Button:
    """A form that is sent after a second click.

    url: from the root of the pages. body: what is sent, together with the values of the fields.
    """

    label: str
    effect: str
    """What it does, in a sentence or two."""
    url: str
    body: str
    fields: tuple[Field, ...] = ()
    dag_id: str = ""
    """The DAG of which Airflow's answer names a run; "" for a decision, whose answer is a sentence."""


@dataclass(frozen=True, slots=True)
class TableAction:
    """An action. dag_id: "" where there is no DAG for it that the viewer may read."""

    title: str
    command: str
    dag_id: str = ""
    how: str = ""
    """What to do on the page of the DAG."""
    params: str = ""
    """The configuration of the run, as JSON."""
    button: Button | None = None


def actions_on(
    pipeline: str,
    table: str,
    rights: Rights,
    *,
    has_history: bool,
    is_scheduled: bool,
    paused_dags: Collection[str] = (),
) -> list[TableAction]:
    """Return the actions on a table.

    has_history: the source has past changes, so that an interval can be replayed. is_scheduled: the DAG of the pipeline
    has a schedule, without which Airflow has no backfill of it. paused_dags: the ids of DAGs whose runs wait.
    """
    reloads = TableAction(
        "Reload the table",
        command_line("reload", pipeline, table),
        _readable(load_dag_id(pipeline), rights),
        "Trigger it with this configuration:",
        json.dumps({"table": table}, ensure_ascii=False),
        _reload_button(pipeline, table, paused_dags) if rights.may_run(load_dag_id(pipeline)) else None,
    )
    if not has_history:
        return [reloads]
    replays = TableAction(
        "Replay an interval of the pipeline",
        command_line("replay", pipeline, "--from-time", "BEGIN", "--to-time", "END"),
        _readable(dag_id(pipeline), rights) if is_scheduled else "",
        "Trigger it as a backfill of the interval.",
        button=_replay_button(pipeline, paused_dags) if is_scheduled and rights.may_run(dag_id(pipeline)) else None,
    )
    return [reloads, replays]


def _readable(dag: str, rights: Rights) -> str:
    return dag if dag in rights.readable_dags else ""


def _reload_button(pipeline: str, table: str, paused_dags: Collection[str]) -> Button:
    dag = load_dag_id(pipeline)
    return Button(
        "Reload the table",
        f"All rows of {table} are read again, and rows that no longer exist at the source are swept. The other tables "
        f"of the pipeline continue.{_waiting(dag, paused_dags)}",
        f"../api/v2/dags/{quote(dag, safe='')}/dagRuns",
        # Without a logical date, any number of runs can be asked for at one moment.
        _json(logical_date=None, conf={"table": table}),
        dag_id=dag,
    )


def _replay_button(pipeline: str, paused_dags: Collection[str]) -> Button:
    dag = dag_id(pipeline)
    return Button(
        "Replay an interval",
        "Airflow makes a backfill, a run for each tick of the schedule in the interval. It merges the changes again. "
        f"Newer rows of the targets stay as they are.{_waiting(dag, paused_dags)}",
        "../api/v2/backfills",
        _json(dag_id=dag, reprocess_behavior="completed", max_active_runs=1),
        (Field("from_date", "From (UTC)", "datetime-local"), Field("to_date", "To (UTC)", "datetime-local")),
        dag,
    )


def _waiting(dag: str, paused_dags: Collection[str]) -> str:
    return f" The DAG {dag} is paused: its runs wait until it is unpaused." if dag in paused_dags else ""


# --------------------------------------------------------------------------------------------------------------------
# The decisions, which have no DAG: the routes of the pages take them.


def right_of(decision: str, pipeline: str, source: str) -> str:
    """Return the DAG whose runs a user must be allowed to start for a decision.

    A decision about drift concerns all pipelines of a source, and its steps are those of the source's DAG.
    """
    return drift_dag_id(source) if decision in ("approve", "reject") else dag_id(pipeline)


def close_button(pipeline: str, event_key: str) -> Button:
    """Return the button that closes an alert."""
    return _decision(
        pipeline,
        "close",
        "Close the alert",
        "The channels get a message with your name and the reason. An event that lasts raises the alert again.",
        {"alert": event_key},
        Field("reason", "Reason"),
    )


def release_button(pipeline: str, table: str) -> Button:
    """Return the button that releases the rows of a table from quarantine."""
    return _decision(
        pipeline,
        "release",
        "Release the rows",
        "The rows that break no rule any more are merged. The others stay in quarantine.",
        {"table": table},
    )


def discard_button(pipeline: str, table: str, rule: str) -> Button:
    """Return the button that settles rows without a merge. rule: only those of this one, "" for all."""
    which = f"of rule {rule} " if rule else ""
    return _decision(
        pipeline,
        "discard",
        f"Discard the rows {which}".rstrip(),
        f"All rows {which}leave quarantine without a merge. The target stays as it is.",
        {"table": table, "rule": rule},
    )


def drift_buttons(pipeline: str, note: DriftNote) -> list[Button]:
    """Return the buttons of an undecided event. An approval is of the T-SQL that the page shows."""
    about = {"event_id": note.event_id, "proposal": note.proposal}
    if not note.proposal:
        effect = "Its alert ends, and the tables that it holds continue with the next run."
        return [_decision(pipeline, "approve", f"Acknowledge event {note.event_id}", effect, about)]
    return [
        _decision(
            pipeline,
            "approve",
            f"Approve event {note.event_id}",
            "The second capture instance is created, and the table switches to it, as proposed above.",
            about,
        ),
        _decision(
            pipeline, "reject", f"Reject event {note.event_id}", "The table continues without the column.", about
        ),
    ]


def _decision(pipeline: str, what: str, label: str, effect: str, body: Mapping[str, Any], *fields: Field) -> Button:
    return Button(label, effect, f"decisions/{quote(pipeline, safe='')}/{what}", _json(**body), fields)


def _json(**body: Any) -> str:
    return json.dumps(body, ensure_ascii=False)
