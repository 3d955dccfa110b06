"""A pool that the configuration names and Airflow does not have: one message, instead of a task that waits for ever.

Only the scheduler may ask Airflow's database. It calls this listener when a run begins, which writes what is missing
into the note of the run; the run's first task, which is in no pool, reads the note and fails with it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from floodmark.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

_LOG = logging.getLogger(__name__)
_PREFIX = "cdc_"
_MISSING = "Floodmark: there is no pool "


@hookimpl  # type: ignore[untyped-decorator]
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """A note of ours goes when the pool is there: a run may be cleared and begin again."""
    if not dag_run.dag_id.startswith(_PREFIX) or dag_run.dag is None:
        return
    from airflow.models.pool import Pool  # noqa: PLC0415  (in the scheduler only)
    from sqlalchemy.orm import object_session  # noqa: PLC0415

    # The scheduler's own session: it forbids everybody to commit meanwhile.
    session = object_session(dag_run)
    if session is None:
        return
    known = {pool.pool for pool in Pool.get_pools(session=session)}
    note = describe_missing({task.pool for task in dag_run.dag.tasks} - known)
    if note:
        _LOG.error("%s, run %s: %s", dag_run.dag_id, dag_run.run_id, note)
        dag_run.note = note
    elif (dag_run.note or "").startswith(_MISSING):
        dag_run.note = None


def describe_missing(pools: set[str]) -> str:
    """ "" where none is missing."""
    if not pools:
        return ""
    names = sorted(pools)
    return (
        f"{_MISSING}{', '.join(names)}. Make it, with as many slots as loads may read the source at once: "
        f"airflow pools set {names[0]} 2 'loads that read the source'"
    )


def require_pools(pipeline: str, dag_run: Any) -> None:
    """dag_run: as the context of a task has it. Raises ConfigError."""
    note = getattr(dag_run, "note", None) or ""
    if note.startswith(_MISSING):
        raise ConfigError(pipeline, note.removeprefix("Floodmark: "))
