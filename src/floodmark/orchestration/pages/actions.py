"""The actions on a table, by a DAG of Airflow or by a command.

Airflow 3 opens its trigger form by a button alone: no address fills it in. So the page links to the DAG and has the
configuration to paste into the form.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection
from dataclasses import dataclass

from floodmark.orchestration.dags.cdc import dag_id
from floodmark.orchestration.dags.load import load_dag_id


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


def actions_on(
    pipeline: str, table: str, readable_dags: Collection[str], *, has_history: bool, is_scheduled: bool
) -> list[TableAction]:
    """Return the actions on a table.

    has_history: the source has past changes, so that an interval can be replayed. is_scheduled: the DAG of the pipeline
    has a schedule, without which Airflow has no backfill of it.
    """
    reloads = TableAction(
        "Reload the table",
        f"floodmark reload {pipeline} {shlex.quote(table)}",
        _readable(load_dag_id(pipeline), readable_dags),
        "Trigger it with this configuration:",
        json.dumps({"table": table}, ensure_ascii=False),
    )
    if not has_history:
        return [reloads]
    replays = TableAction(
        "Replay an interval of the pipeline",
        f"floodmark replay {pipeline} --from-time BEGIN --to-time END",
        _readable(dag_id(pipeline), readable_dags) if is_scheduled else "",
        "Trigger it as a backfill of the interval.",
    )
    return [reloads, replays]


def approval_params(event_id: int) -> str:
    """Return the configuration of a run that approves a drift event."""
    return json.dumps({"event_id": event_id})


def _readable(dag: str, readable_dags: Collection[str]) -> str:
    return dag if dag in readable_dags else ""
