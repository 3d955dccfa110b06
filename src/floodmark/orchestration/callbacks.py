"""The callbacks that Airflow calls when a run has failed or is late.

The callback for failed runs belongs to the DAG. The DAG processor runs it at the scheduler's request, so that it also
runs when the task, its worker or its machine was killed. Only the task knows the error. It leaves the error for the
callback in XCom.
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

from floodmark.app.alerts import report_tables
from floodmark.app.replay import can_replay
from floodmark.config.models import PipelineConfig
from floodmark.core.alerts.runs import REPLAY_FAILED, RUN_FAILED, RunFailure, data_interval, run_failed, run_late
from floodmark.core.errors import FloodmarkError
from floodmark.orchestration.airflow_errors import AIRFLOW_ERRORS
from floodmark.orchestration.context import open_app

_LOG = logging.getLogger(__name__)
FAILURE_KEY = "floodmark_failure"
_UNFINISHED = ("queued", "running")
BACKFILL = "backfill"
"""The type of the runs that ``airflow backfill`` creates or repeats."""


def leave_failure(error: FloodmarkError) -> None:
    """Leave the error in XCom for the callback. Do nothing outside of a task; a failure to do so is only logged."""
    try:
        context = get_current_context()
    except RuntimeError:
        return
    try:
        context["ti"].xcom_push(FAILURE_KEY, asdict(RunFailure.of(error)))
    except AIRFLOW_ERRORS as problem:
        _LOG.warning("Could not save the cause of this failure for its alert: %s", problem)


def failure_callback(
    config_path: Path, kind: str, subject: str, kind_by_task: Mapping[str, str]
) -> Callable[[Mapping[str, Any]], None]:
    """Return the ``on_failure_callback`` of a DAG.

    kind, and the values of kind_by_task for single tasks: an alert kind of ``core.alerts.runs``. subject: the pipeline
    or the source. A failed backfill of a pipeline raises an alert of another kind than a failed run.
    """

    def notify(context: Mapping[str, Any]) -> None:
        ti, dag = context.get("ti"), context["dag"]
        task_id = ti.task_id if ti else ""
        app = open_app(config_path, parse_rules=False)
        replayed = _replayed(context) if kind == RUN_FAILED else ""
        if replayed and not can_replay(app, subject):
            # A backfill that was refused: no later one would end an alert about it.
            return
        alert = run_failed(
            REPLAY_FAILED if replayed else kind_by_task.get(task_id, kind),
            subject,
            _take_failure(ti),
            dag_id=dag.dag_id,
            run_id=context["run_id"],
            task_id=task_id,
            part=replayed,
        )
        app.alerts().raise_alert(alert)
        if alert.kind == RUN_FAILED:
            report_tables(app, subject)

    return notify


def _take_failure(ti: Any) -> RunFailure | None:
    if ti is None:
        return None
    try:
        return RunFailure.parse(ti.xcom_pull(task_ids=ti.task_id, key=FAILURE_KEY))
    except AIRFLOW_ERRORS as problem:
        _LOG.warning("Could not read why task %s failed: %s", ti.task_id, problem)
        return None


def _replayed(context: Mapping[str, Any]) -> str:
    """Return the data interval of a backfill, "" for another run.

    Airflow passes the run only where one of its tasks has run. Otherwise only the run's id is known.
    """
    run = context.get("dag_run")
    if run is None:
        return context["run_id"] if context["run_id"].startswith(f"{BACKFILL}__") else ""
    return data_interval(run.data_interval_start, run.data_interval_end) if run.run_type == BACKFILL else ""


def deadline_of(config_path: Path, name: str, pipeline: PipelineConfig) -> DeadlineAlert | None:
    """Return the deadline of a run: it must end within ``max_lag`` after it was queued. None without ``max_lag``.

    A deadline does not detect data that are late for another reason, such as a held table: see ``app.measure``.
    """
    if pipeline.max_lag is None:
        return None
    known = {"config": str(config_path), "pipeline": name, "limit_seconds": pipeline.max_lag.total_seconds()}
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=pipeline.max_lag,
        # It runs in the triggerer: an executor without a free slot may be the reason why the run is late.
        callback=AsyncCallback(report_late_run, known),
    )


async def report_late_run(config: str, pipeline: str, limit_seconds: float, context: Mapping[str, Any]) -> None:
    """Raise the alert about a late run, unless the run has ended or is a backfill.

    Airflow also calls this when the run failed before its deadline, which is another alert. A backfill repeats rows
    and is never late.
    """
    run = context["dag_run"]
    if run["state"] not in _UNFINISHED or run["run_type"] == BACKFILL:
        return
    queued_at = str(run["queued_at"]).replace("T", " ").partition(".")[0] + " UTC"
    alert = run_late(pipeline, run["dag_run_id"], queued_at, limit_seconds)
    alerts = open_app(config, parse_rules=False).alerts()
    # Channels and ledger block, and the triggerer runs all its triggers in one thread.
    await asyncio.to_thread(alerts.raise_alert, alert)
