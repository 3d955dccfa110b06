"""One DAG per source whose capture job is managed, ``cdc_capture_<source>``. Its single task brings the job to the
state that the schedule requires now."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import DAG, CronTriggerTimetable, task

from floodmark.app import upkeep
from floodmark.config.upkeep import CaptureConfig
from floodmark.core.alerts.runs import CAPTURE_RUN_FAILED
from floodmark.orchestration.context import app_of
from floodmark.orchestration.dags.frame import is_needed, make_dag
from floodmark.orchestration.failure import explained

if TYPE_CHECKING:
    from floodmark.config.models import Config


def build_capture_dags(config: Config, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per source with ``capture``, by id; in the process of a task, that of the task."""
    dags = (
        _build(config, name, source.capture, config_path)
        for name, source in config.sources.items()
        if source.capture is not None and is_needed(_dag_id(name))
    )
    return {dag.dag_id: dag for dag in dags}


def _dag_id(source: str) -> str:
    return f"cdc_capture_{source}"


def _build(config: Config, source: str, capture: CaptureConfig, config_path: Path) -> DAG:
    """Build the DAG. A missed run is not repeated: the next one does the same."""
    dag = make_dag(
        _dag_id(source),
        source=source,
        tags=("capture",),
        config_path=config_path,
        failed=CAPTURE_RUN_FAILED,
        subject=source,
        description=f"The capture job of source {source}: planned stops, parameters, and liveness",
        doc_md=_describe(source, capture),
        schedule=CronTriggerTimetable(capture.schedule, timezone="UTC"),
    )
    with dag:

        @task(doc_md="Stop, start or change the capture job, or leave it alone.")  # type: ignore[untyped-decorator]
        def keep_capture() -> str:
            return run_keep_capture(config, source, capture, datetime.now(UTC))

        keep_capture()
    return dag


def run_keep_capture(config: Config, source: str, capture: CaptureConfig, now: datetime) -> str:
    """Return what was done and why, in one sentence."""
    with explained():
        return upkeep.keep_capture(app_of(config), source, capture, now)


def _describe(source: str, capture: CaptureConfig) -> str:
    """Return the DAG's page in Markdown."""
    stops = "\n".join(f"| `{stop.stop}` | `{stop.start}` |" for stop in capture.stops)
    windows = f"Planned stops ({capture.time_zone}):\n\n| stop | start |\n|---|---|\n{stops}\n" if stops else ""
    job = ", ".join(f"`{name}` {value}" for name, value in capture.settings().job.items()) or "not changed"
    return (
        f"# The capture job of {source}\n\n"
        "Each run brings the job to the state that the schedule requires now. A missed run does no harm: the next one "
        "does the same. A job that was stopped outside a planned stop is started again.\n\n"
        f"{windows}\nParameters of the job: {job}.\n\n"
        f"A planned stop waits up to {capture.drain_limit} for capture to catch up. It is refused or ended when the "
        f"source's log is more than {capture.log_used_limit_percent:.0f} % full, or has been held for uncaptured "
        f"changes for more than {capture.log_held_limit}.\n"
    )
