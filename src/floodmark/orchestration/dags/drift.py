"""One DAG per source, ``cdc_drift_<source>``. It detects schema drift. Where the source has capture instances, it then
advances the approved switches, and starts a run of ``cdc_switch_<source>`` for each proposed one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronTriggerTimetable, task

from floodmark.app import drift
from floodmark.core.alerts.runs import DRIFT_RUN_FAILED, SWITCH_RUN_FAILED
from floodmark.orchestration.context import open_app
from floodmark.orchestration.dags import switch as switch_dag
from floodmark.orchestration.dags.frame import is_needed, make_dag
from floodmark.orchestration.failure import explained
from floodmark.wiring.pipelines import wire_source

if TYPE_CHECKING:
    from floodmark.config.models import Config

_PAGE = """
# Schema drift of {source}

Each run checks the tables of {pipelines} for columns added, dropped, widened, narrowed or changed in kind or
nullability, changed keys, renamed and dropped tables, {feeds}.
Each event is recorded once in the ledger (`floodmark.drift_events`) and reported once. The configuration, under
`drift`, says what is done about it.

Every run of a pipeline checks too, before it plans. A table whose new shape would not fit its target is held from the
first run that detects it. `floodmark drift list` shows the events, `floodmark drift approve` ends a hold.
"""
_FEEDS = {
    True: "change data capture disabled, and capture instances replaced",
    False: "the recording of changes disabled, or begun again. The source keeps no history of DDL: an event is known "
    "from the comparison of two runs, without its time and statement",
}
"""By whether the source has capture instances."""
_SWITCHES = """
After the check, approved switches of capture instances proceed as far as they can now. For each proposed and undecided
switch, one run of `cdc_switch_{source}` asks for a decision, however often this DAG runs.
"""

# The tasks that handle switches. When they fail, the drift check itself has already been done.
_SWITCH_TASKS = ("switch_instances", "list_questions", "ask")


def build_drift_dags(config: Config, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per source that a pipeline reads, by id; in the process of a task, that of the task."""
    read = {pipeline.source for pipeline in config.pipelines.values()}
    dags = (
        _build(config, name, config_path) for name in config.sources if name in read and is_needed(drift_dag_id(name))
    )
    return {dag.dag_id: dag for dag in dags}


def drift_dag_id(source: str) -> str:
    """Return the id of a source's drift DAG."""
    return f"cdc_drift_{source}"


def _build(config: Config, source: str, config_path: Path) -> DAG:
    schedule = config.sources[source].drift.schedule
    pipelines = sorted(name for name, pipeline in config.pipelines.items() if pipeline.source == source)
    has_instances = wire_source(config, source).has_instances
    page = _PAGE + (_SWITCHES if has_instances else "")
    dag = make_dag(
        drift_dag_id(source),
        source=source,
        tags=("drift",),
        config_path=config_path,
        failed=DRIFT_RUN_FAILED,
        failed_by_task=dict.fromkeys(_SWITCH_TASKS, SWITCH_RUN_FAILED),
        subject=source,
        description=f"Schema drift of the tables of source {source}",
        doc_md=page.format(source=source, pipelines=", ".join(pipelines), feeds=_FEEDS[has_instances]),
        schedule=CronTriggerTimetable(schedule, timezone="UTC") if schedule else None,
    )
    with dag:

        @task(doc_md="Detect drift, record it, raise alerts, hold tables.")  # type: ignore[untyped-decorator]
        def watch_drift() -> str:
            with explained():
                app = open_app(config_path)
                held = drift.watch_drift(app, source)
                app.alerts().end_alerts(DRIFT_RUN_FAILED, source)
                return held

        watched = watch_drift()
        if has_instances:
            _add_switches(config_path, source, watched)
    return dag


def _add_switches(config_path: Path, source: str, watched: Any) -> None:
    """Add the tasks about switches of capture instances to the DAG, after the check."""

    @task(doc_md="Advance every approved switch as far as it can go now.")  # type: ignore[untyped-decorator]
    def switch_instances() -> str:
        return switch_dag.run_switch_instances(config_path, source)

    @task(doc_md="List the undecided switches.")  # type: ignore[untyped-decorator]
    def list_questions() -> list[dict[str, Any]]:
        return switch_dag.list_questions(config_path, source)

    questions = list_questions()
    watched >> [switch_instances(), questions]
    TriggerDagRunOperator.partial(
        task_id="ask",
        trigger_dag_id=switch_dag.switch_dag_id(source),
        # Any number of runs without a date can begin at once. The run's id is the proposal's, so there is only one.
        logical_date=None,
        skip_when_already_exists=True,
        doc_md="Start one run per question. Skipped where the question has been asked.",
    ).expand_kwargs(questions)
