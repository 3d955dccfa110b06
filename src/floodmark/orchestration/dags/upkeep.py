"""The DAGs of a source: capture job, retention, schema drift, and switches of capture instances; and that of a lake."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable, Param, task
from airflow.sdk.exceptions import AirflowSkipException

from floodmark.app import operate, upkeep
from floodmark.config.sections import CaptureConfig, RetentionConfig
from floodmark.core.alerts import (
    CAPTURE_RUN_FAILED,
    DRIFT_RUN_FAILED,
    LAKE,
    LAKE_UPKEEP_FAILED,
    RETENTION_RUN_FAILED,
    SWITCH_RUN_FAILED,
)
from floodmark.orchestration.dags.pipelines import (
    drift_dag_id,
    is_needed,
    make_dag,
    question_run_id,
    start_loads,
    switch_dag_id,
    work_from,
    work_of,
)
from floodmark.orchestration.tasks import explained, open_app

if TYPE_CHECKING:
    from floodmark.app.pipeline import App


# --------------------------------------------------------------------------------------------------------------------
# One DAG per source whose capture job is managed, ``cdc_capture_<source>``. Its single task brings the job to the state
# that the schedule requires now.


def build_capture_dags(app: App, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per source with ``capture``, by id; in the process of a task, that of the task."""
    dags = (
        _build_capture(app, name, source.capture, config_path)
        for name, source in app.config.sources.items()
        if source.capture is not None and is_needed(_capture_dag_id(name))
    )
    return {dag.dag_id: dag for dag in dags}


def _capture_dag_id(source: str) -> str:
    return f"cdc_capture_{source}"


def _build_capture(app: App, source: str, capture: CaptureConfig, config_path: Path) -> DAG:
    """Build the DAG. A missed run is not repeated: the next one does the same."""
    dag = make_dag(
        _capture_dag_id(source),
        source=source,
        tags=("capture",),
        config_path=config_path,
        failed=CAPTURE_RUN_FAILED,
        subject=source,
        description=f"The capture job of source {source}: planned stops, parameters, and liveness",
        doc_md=_describe_capture(source, capture),
        schedule=CronTriggerTimetable(capture.schedule, timezone="UTC"),
    )
    with dag:

        @task(doc_md="Stop, start or change the capture job, or leave it alone.")  # type: ignore[untyped-decorator]
        def keep_capture() -> str:
            with explained():
                return upkeep.keep_capture(app, source, capture, datetime.now(UTC))

        keep_capture()
    return dag


def _describe_capture(source: str, capture: CaptureConfig) -> str:
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


# --------------------------------------------------------------------------------------------------------------------
# One DAG per source whose retention is guarded, ``cdc_retention_<source>``. Its single task forecasts when cleanup
# passes a watermark, and brings the cleanup job to the state that is wanted now.


def build_retention_dags(app: App, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per source with ``retention``, by id; in the process of a task, that of the task."""
    dags = (
        _build_retention(app, name, source.retention, config_path)
        for name, source in app.config.sources.items()
        if source.retention is not None and is_needed(_retention_dag_id(name))
    )
    return {dag.dag_id: dag for dag in dags}


def _retention_dag_id(source: str) -> str:
    return f"cdc_retention_{source}"


def _build_retention(app: App, source: str, retention: RetentionConfig, config_path: Path) -> DAG:
    """Build the DAG. A missed run is not repeated: the next one does the same."""
    dag = make_dag(
        _retention_dag_id(source),
        source=source,
        tags=("retention",),
        config_path=config_path,
        failed=RETENTION_RUN_FAILED,
        subject=source,
        description=f"The retention of source {source}, compared with the watermarks of its readers",
        doc_md=_describe_retention(source, retention),
        schedule=CronTriggerTimetable(retention.schedule, timezone="UTC"),
    )
    with dag:

        @task(doc_md="Forecast, raise alerts, raise or restore the retention.")  # type: ignore[untyped-decorator]
        def keep_retention() -> str:
            with explained():
                return upkeep.keep_retention(app, source, retention)

        keep_retention()
    return dag


def _describe_retention(source: str, retention: RetentionConfig) -> str:
    """Return the DAG's page in Markdown."""
    keep = f"at `{retention.keep}`" if retention.keep else "unchanged"
    margin = (
        f"Each run cleans up the changes that are older than the slowest watermark by more than "
        f"{retention.cleanup_margin}."
        if retention.cleanup_margin
        else "The server's own job does the cleanup."
    )
    return (
        f"# The retention of {source}\n\n"
        "Each run forecasts when the server's cleanup passes the slowest watermark of the pipelines that read this "
        f"source. When less than {retention.headroom_limit} is left, it raises an alert and does this: "
        f"`{retention.on_low.value}`. Otherwise the retention is kept {keep}.\n\n{margin}\n"
    )


# --------------------------------------------------------------------------------------------------------------------
# The DAG of a lake, ``cdc_lake_upkeep``. Its single task keeps the tables of all pipelines, one after the other.


_LAKE_UPKEEP = "cdc_lake_upkeep"
_LAKE_PAGE = """
# The upkeep of the lake

Each run compacts the tables where that is due, expires snapshots that are older than {keep}, and removes files that no
snapshot has. A table with an unfinished window is left alone until the next run. The log has a line for each table.

The same on the command line: `floodmark lake list`, `floodmark lake upkeep`.
"""


def build_lake_dags(app: App, config_path: Path) -> dict[str, DAG]:
    """Return the DAG of the lake, by id; none for another warehouse; in the process of a task, that of the task."""
    if not app.is_lake or not is_needed(_LAKE_UPKEEP):
        return {}
    kept = app.config.warehouse.lake_upkeep
    dag = make_dag(
        _LAKE_UPKEEP,
        source=None,
        tags=("lake",),
        config_path=config_path,
        failed=LAKE_UPKEEP_FAILED,
        subject=LAKE,
        description="The files and snapshots of the lake's tables",
        doc_md=_LAKE_PAGE.format(keep=kept.keep),
        schedule=CronTriggerTimetable(kept.schedule, timezone="UTC"),
    )
    with dag:

        @task(doc_md="Compact, expire snapshots, remove files.")  # type: ignore[untyped-decorator]
        def keep_tables() -> str:
            with explained():
                return upkeep.run_lake_upkeep(app)

        keep_tables()
    return {_LAKE_UPKEEP: dag}


# --------------------------------------------------------------------------------------------------------------------
# One DAG per source, ``cdc_switch_<source>``. Each run asks the operator about one proposed switch of a capture
# instance, and carries out the answer.


APPROVE, REJECT = "Approve", "Reject"
MAX_WAITING = 16
"""The number of questions that can wait for an answer at once. A waiting task holds neither a worker nor a slot."""

_SWITCH_PAGE = """
# Switches of capture instances of {source}

A column was added to a table, and the table's capture instance does not have it. `cdc_drift_{source}` starts one run of
this DAG for each such proposal. The run shows the T-SQL of the second capture instance and waits for an answer without
a time limit: under *Browse*, *Required Actions*, choose **Approve** or **Reject**.

* **Approve**: the second instance is created at once. The pipelines read the first one up to the start of the second
  one and switch to it. Then the first one is dropped. Every run of `cdc_drift_{source}` takes the steps that are
  possible at that time.
* **Reject**: the table continues without the new column.

The same on the command line: `floodmark drift list`, `floodmark drift approve`, `floodmark drift reject`. A question
that was decided there, or whose T-SQL has changed with the source, still waits here: an answer to it changes nothing
and ends the run as skipped. Another run asks about the new proposal.

Keep this DAG unpaused: it has no schedule, and a paused DAG asks nothing.
"""


def build_switch_dags(app: App, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per source with capture instances that a pipeline reads, by id; in the process of a task, that of
    the task."""
    names = (name for name in app.config.sources if app.pipelines_of(name) and app.source(name).has_instances)
    dags = (_build_switch(name, config_path) for name in names if is_needed(switch_dag_id(name)))
    return {dag.dag_id: dag for dag in dags}


def _build_switch(source: str, config_path: Path) -> DAG:
    dag = make_dag(
        switch_dag_id(source),
        source=source,
        tags=("drift",),
        config_path=config_path,
        failed=SWITCH_RUN_FAILED,
        subject=source,
        max_active_runs=MAX_WAITING,
        description=f"Switches of capture instances of source {source}, each approved or rejected by the operator",
        doc_md=_SWITCH_PAGE.format(source=source),
        schedule=None,
        # New DAGs are paused by default; a paused DAG would never ask.
        is_paused_upon_creation=False,
        params={"event_id": Param(type="integer", minimum=1, description="The drift event that proposes the switch.")},
    )
    with dag:

        @task(doc_md="Describe the proposal, with its T-SQL.")  # type: ignore[untyped-decorator]
        def describe_switch(params: Any = None) -> dict[str, str]:
            return run_describe_switch(config_path, source, params["event_id"])

        @task(doc_md="Record the answer and the name of the user.")  # type: ignore[untyped-decorator]
        def take_decision(key: str, answer: Any, params: Any = None) -> str:
            return run_take_decision(config_path, source, params["event_id"], key, answer)

        @task(doc_md="Create the second instance, if it was approved.")  # type: ignore[untyped-decorator]
        def switch_instances() -> str:
            return run_switch_instances(config_path, source)

        described = describe_switch()
        decided = HITLOperator(
            task_id="decide_switch",
            subject=described["subject"],
            body=described["body"],
            options=[APPROVE, REJECT],
            doc_md="Wait for the operator's answer, without a time limit.",
        )
        take_decision(described["key"], decided.output) >> switch_instances()
    return dag


def run_describe_switch(config_path: Path, source: str, event_id: int) -> dict[str, str]:
    """Return subject, body and key of the question. Skips the run where there is nothing to decide."""
    with explained():
        proposed = _find_proposed(open_app(config_path), source, event_id)
    if proposed is None:
        raise AirflowSkipException(
            f"Drift event {event_id} of source {source} has no undecided proposal. See: floodmark drift list --all"
        )
    return {"subject": proposed.subject, "body": proposed.body, "key": proposed.key}


def run_take_decision(config_path: Path, source: str, event_id: int, key: str, answer: Mapping[str, Any]) -> str:
    """Record the decision and return it in a sentence. key: of the question. answer: what HITLOperator returns.

    Skips the rest of the run where the question has changed: an answer applies only to the T-SQL that the user has
    read.
    """
    (option,) = answer["chosen_options"]
    by = answer["responded_by_user"]["name"]
    with explained():
        app = open_app(config_path)
        proposed = _find_proposed(app, source, event_id)
        if proposed is None or proposed.key != key:
            raise AirflowSkipException(
                f"The question about drift event {event_id} of source {source} is no longer open: it was decided "
                "elsewhere, or the source has changed and another run asks about that. "
                f"The answer {option} of {by} changed nothing. See: floodmark drift list --all"
            )
        decide = operate.approve_switch if option == APPROVE else operate.reject_switch
        return decide(app, event_id, by)


def run_switch_instances(config_path: Path, source: str) -> str:
    """Advance every approved switch as far as it can go now. Return the state of each in a sentence."""
    with explained():
        app = open_app(config_path)
        states = operate.run_switches(app, source)
        app.alerts.end_alerts(SWITCH_RUN_FAILED, source)
        return states


def read_questions(config_path: Path, source: str) -> list[dict[str, Any]]:
    """Return the run that asks about each undecided proposal, as TriggerDagRunOperator takes it.

    A proposal that has changed is asked again.
    """
    with explained():
        proposed = operate.list_proposed(open_app(config_path), source)
    return [{"trigger_run_id": question_run_id(each), "conf": {"event_id": each.event_id}} for each in proposed]


def _find_proposed(app: App, source: str, event_id: int) -> operate.ProposedSwitch | None:
    return next((each for each in operate.list_proposed(app, source) if each.event_id == event_id), None)


# --------------------------------------------------------------------------------------------------------------------
# One DAG per source, ``cdc_drift_<source>``. It detects schema drift. Where the source has capture instances, it then
# advances the approved switches, and starts a run of ``cdc_switch_<source>`` for each proposed one.


_DRIFT_PAGE = """
# Schema drift of {source}

A run of a pipeline starts a run here when there is work: a new column to ask about, a switch in progress, or a check
that failed. Each run checks the tables of {pipelines} for columns added, dropped, widened, narrowed or changed in kind
or nullability, changed keys, renamed and dropped tables, {feeds}.
Each event is recorded once in the ledger (`floodmark.drift_events`) and reported once. The configuration, under
`drift`, says what is done about it.

Every run of a pipeline checks too, before it plans; once an hour it reads the DDL history and the columns that are not
captured. A table whose new shape would not fit its target is held from the
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


def build_drift_dags(app: App, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per source that a pipeline reads, by id; in the process of a task, that of the task."""
    dags = (
        _build_drift(app, name, config_path)
        for name in app.config.sources
        if app.pipelines_of(name) and is_needed(drift_dag_id(name))
    )
    return {dag.dag_id: dag for dag in dags}


def _build_drift(app: App, source: str, config_path: Path) -> DAG:
    schedule = app.config.sources[source].drift.schedule
    pipelines = sorted(each.name for each in app.pipelines_of(source))
    has_instances = app.source(source).has_instances
    page = _DRIFT_PAGE + (_SWITCHES if has_instances else "")
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
        schedule=_drift_schedule(source, schedule),
    )
    with dag:

        @task(doc_md="Detect drift, record it, raise alerts, hold tables.")  # type: ignore[untyped-decorator]
        def watch_drift() -> str:
            with explained():
                app = open_app(config_path)
                held = upkeep.watch_drift(app, source)
                app.alerts.end_alerts(DRIFT_RUN_FAILED, source)
                return held

        watched = watch_drift()
        if has_instances:
            _add_switches(config_path, source, watched)
    return dag


def _drift_schedule(source: str, cron: str | None) -> list[Asset] | AssetOrTimeSchedule:
    works = [work_of(drift_dag_id(source))]
    return AssetOrTimeSchedule(assets=works, timetable=CronTriggerTimetable(cron, timezone="UTC")) if cron else works


def _add_switches(config_path: Path, source: str, watched: Any) -> None:
    """Add the tasks about switches of capture instances to the DAG, after the check."""

    @task(
        outlets=[work_from(f"source.{source}")],
        doc_md="Advance every approved switch as far as it can go now, and start the loads of new columns.",
    )  # type: ignore[untyped-decorator]
    def switch_instances(outlet_events: Any = None) -> str:
        states = run_switch_instances(config_path, source)
        with explained():
            for pipeline in open_app(config_path).pipelines_of(source):
                start_loads(pipeline, outlet_events[work_from(f"source.{source}")])
        return states

    @task(doc_md="List the undecided switches.")  # type: ignore[untyped-decorator]
    def list_questions() -> list[dict[str, Any]]:
        return read_questions(config_path, source)

    questions = list_questions()
    watched >> [switch_instances(), questions]
    TriggerDagRunOperator.partial(
        task_id="ask",
        trigger_dag_id=switch_dag_id(source),
        # Any number of runs without a date can begin at once. The run's id is the proposal's, so there is only one.
        logical_date=None,
        skip_when_already_exists=True,
        doc_md="Start one run per question. Skipped where the question has been asked.",
    ).expand_kwargs(questions)
