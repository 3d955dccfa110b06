"""A message about a pool that the configuration names and Airflow does not have, instead of a task that waits forever.

Only the scheduler may query Airflow's database. It calls this listener when a run begins. The listener writes the
missing pools into the note of the run, for the operator, and into its conf, which a task receives (with Airflow 3.3 a
task does not receive the note). The run's first task, which is in no pool, reads the conf and fails with the message.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from floodmark.core.errors import ConfigError
from floodmark.orchestration.tasks import OWNER

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

_LOG = logging.getLogger(__name__)
_DEFAULT_POOL = "default_pool"
"""Airflow creates it and does not allow it to be deleted."""
_MISSING = "there is no pool "
CONF_KEY = "floodmark_missing_pool"


@hookimpl  # type: ignore[untyped-decorator]
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Record the missing pools in a run that begins.

    The record is removed once the pools exist: a run may be cleared and begin again.
    """
    if dag_run.dag is None or OWNER not in dag_run.dag.tags:
        return
    named = {task.pool for task in dag_run.dag.tasks} - {_DEFAULT_POOL}
    missing = describe_missing(named - _known_pools(dag_run)) if named else ""
    conf = dict(dag_run.conf or {})
    if missing:
        _LOG.error("%s, run %s: %s", dag_run.dag_id, dag_run.run_id, missing)
        dag_run.note = missing
        dag_run.conf = conf | {CONF_KEY: missing}
    elif conf.pop(CONF_KEY, None) is not None:
        dag_run.conf = conf
        if (dag_run.note or "").startswith(_MISSING):
            dag_run.note = None


def _known_pools(dag_run: DagRun) -> set[str | None]:
    from airflow.models.pool import Pool  # noqa: PLC0415  (in the scheduler only)
    from sqlalchemy.orm import object_session  # noqa: PLC0415

    # Use the scheduler's own session: it does not allow commits by others meanwhile.
    session = object_session(dag_run)
    assert session is not None  # noqa: S101  (the scheduler has just read the run)
    return {pool.pool for pool in Pool.get_pools(session=session)}


def describe_missing(pools: set[str]) -> str:
    """Return the message about missing pools, "" where none is missing."""
    if not pools:
        return ""
    names = sorted(pools)
    return (
        f"{_MISSING}{', '.join(names)}. Create it, with as many slots as loads may read the source at once: "
        f"airflow pools set {names[0]} 2 'loads that read the source'"
    )


def require_pools(pipeline: str, dag_run: Any) -> None:
    """Raise ConfigError where the listener has recorded a missing pool. dag_run: from the context of a task."""
    missing = (dag_run.conf or {}).get(CONF_KEY)
    if missing:
        raise ConfigError(pipeline, str(missing))
