"""The state of pipelines in Airflow: whether their DAGs are paused, and when they run next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class DagState:
    """next_run_at: the earliest moment of the next scheduled run; None where none is planned."""

    is_paused: bool
    next_run_at: datetime | None


def read_dag_states(dag_ids: Collection[str]) -> Mapping[str, DagState]:
    """Return the DAGs that Airflow has parsed. To be called in the API server, which may query Airflow's database."""
    from airflow.models.dag import DagModel  # noqa: PLC0415  (only the API server may import it)
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    wanted = (DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after)
    query = select(*wanted).where(DagModel.dag_id.in_(dag_ids), DagModel.is_stale.is_(False))
    with create_session(scoped=False) as session:
        rows = session.execute(query).all()
    return {dag: DagState(is_paused=paused, next_run_at=None if paused else at) for dag, paused, at in rows}
