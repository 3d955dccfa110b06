"""What Airflow calls when a run has failed or is late.

The one about failed runs is the DAG's, which the DAG processor runs on the scheduler's word: it comes also when the
task, its worker or its machine was killed. The error itself is known to the task alone, which leaves it behind for the
callback, in XCom.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow.sdk import get_current_context
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from floodmark.config.models import PipelineConfig
from floodmark.core.alerts.runs import REPLAY_FAILED, RUN_FAILED, RunFailure, data_interval, run_failed, run_late
from floodmark.core.errors import FloodmarkError
from floodmark.orchestration.airflow_errors import AIRFLOW_ERRORS
from floodmark.orchestration.context import open_app

_LOG = logging.getLogger(__name__)
FAILURE_KEY = "floodmark_failure"
_UNFINISHED = ("queued", "running")
BACKFILL = "backfill"
"""The type of the runs that ``airflow backfill`` makes, and of those that it runs again."""


def leave_failure(error: FloodmarkError) -> None:
    """For the callback. Outside of a task there is nobody to leave it to; failing to do so is no reason to fail."""
    try:
        context = get_current_context()
    except RuntimeError:
        return
    try:
        context["ti"].xcom_push(FAILURE_KEY, asdict(RunFailure.of(error)))
    except AIRFLOW_ERRORS as problem:
        _LOG.warning("An alert about this failure will not say why: %s", problem)


def failure_callback(
    config_path: Path, kind: str, subject: str, kind_by_task: Mapping[str, str]
) -> Callable[[Mapping[str, Any]], None]:
    """The ``on_failure_callback`` of a DAG. kind: of ``core.run_alerts``, as kind_by_task's for single tasks; subject:
    the pipeline or the source. A backfill of a pipeline that fails is another matter than a run that brings rows."""

    def notify(context: Mapping[str, Any]) -> None:
        ti, dag = context.get("ti"), context["dag"]
        task_id = ti.task_id if ti else ""
        replayed = _replayed(context) if kind == RUN_FAILED else ""
        alert = run_failed(
            REPLAY_FAILED if replayed else kind_by_task.get(task_id, kind), subject, _take_failure(ti),
            dag_id=dag.dag_id, run_id=context["run_id"], task_id=task_id, part=replayed,
        )  # fmt: skip
        open_app(config_path, parse_rules=False).alerts().raise_alert(alert)

    return notify


def _take_failure(ti: Any) -> RunFailure | None:
    if ti is None:
        return None
    try:
        return RunFailure.parse(ti.xcom_pull(task_ids=ti.task_id, key=FAILURE_KEY))
    except AIRFLOW_ERRORS as problem:
        _LOG.warning("Why task %s failed cannot be read: %s", ti.task_id, problem)
        return None


def _replayed(context: Mapping[str, Any]) -> str:
    """The data interval of a backfill, "" of another run. Airflow tells of the run only where a task of it has run;
    without, all that is known is its id."""
    run = context.get("dag_run")
    if run is None:
        return context["run_id"] if context["run_id"].startswith(f"{BACKFILL}__") else ""
    return data_interval(run.data_interval_start, run.data_interval_end) if run.run_type == BACKFILL else ""


def deadline_of(config_path: Path, name: str, pipeline: PipelineConfig) -> DeadlineAlert | None:
    """A run that has not ended within ``max_lag`` of being queued. That data are late for another reason, such as a
    table that is held, no deadline of a run can tell: see ``measuring``."""
    if pipeline.max_lag is None:
        return None
    known = {"config": str(config_path), "pipeline": name, "limit_seconds": pipeline.max_lag.total_seconds()}
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=pipeline.max_lag,
        # In the triggerer: an executor whose slots are all taken may be why the run is late.
        callback=AsyncCallback(report_late_run, known),
    )


async def report_late_run(config: str, pipeline: str, limit_seconds: float, context: Mapping[str, Any]) -> None:
    """Airflow's word comes too when the run failed before its deadline; that is another alert. A backfill brings rows
    once more, and is never late."""
    run = context["dag_run"]
    if run["state"] not in _UNFINISHED or run["run_type"] == BACKFILL:
        return
    queued_at = str(run["queued_at"]).replace("T", " ").partition(".")[0] + " UTC"
    alert = run_late(pipeline, run["dag_run_id"], queued_at, limit_seconds)
    alerts = open_app(config, parse_rules=False).alerts()
    # Channels and ledger block, and the triggerer has one thread for everybody.
    await asyncio.to_thread(alerts.raise_alert, alert)
