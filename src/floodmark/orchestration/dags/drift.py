"""One DAG per source, ``cdc_drift_<source>``: looks for schema drift, takes the switches that were approved one step
further, and has ``cdc_switch_<source>`` ask about those that are proposed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronTriggerTimetable, task

from floodmark.app import drift
from floodmark.core.alerts.runs import DRIFT_RUN_FAILED, SWITCH_RUN_FAILED
from floodmark.orchestration.context import open_app
from floodmark.orchestration.dags import switch as switch_dag
from floodmark.orchestration.dags.frame import make_dag
from floodmark.orchestration.failure import explained

if TYPE_CHECKING:
    from floodmark.config.models import Config

_PAGE = """
# Schema drift of {source}

Each run looks at the tables of {pipelines}: columns added, dropped, widened, narrowed or changed in kind, nullability,
key, renamed and dropped tables, change data capture disabled, capture instances replaced. Each event enters the ledger
once (`floodmark.drift_events`) and is told once. What is done about it is decided in the configuration, under `drift`.

Every run of a pipeline looks too, before it plans: a table whose new shape would not fit its target is held from the
first run that sees it. `floodmark drift list` shows the events, `floodmark drift approve` ends a hold.

After the look, switches of capture instances that were approved go as far as they can by now, and for each that is
proposed and not decided one run of `cdc_switch_{source}` asks, however often this DAG runs.
"""

# The tasks that are about switches. The drift itself has been looked for when they fail.
_SWITCH_TASKS = ("switch_instances", "list_questions", "ask")


def build_drift_dags(config: Config, config_path: Path) -> dict[str, DAG]:
    """By id, one per source that a pipeline reads."""
    read = {pipeline.source for pipeline in config.pipelines.values()}
    dags = (_build(config, name, config_path) for name in config.sources if name in read)
    return {dag.dag_id: dag for dag in dags}


def drift_dag_id(source: str) -> str:
    return f"cdc_drift_{source}"


def _build(config: Config, source: str, config_path: Path) -> DAG:
    schedule = config.sources[source].drift.schedule
    pipelines = sorted(name for name, pipeline in config.pipelines.items() if pipeline.source == source)
    dag = make_dag(
        drift_dag_id(source),
        source=source,
        tags=("drift",),
        config_path=config_path,
        failed=DRIFT_RUN_FAILED,
        failed_by_task=dict.fromkeys(_SWITCH_TASKS, SWITCH_RUN_FAILED),
        subject=source,
        description=f"Schema drift of the tables of source {source}",
        doc_md=_PAGE.format(source=source, pipelines=", ".join(pipelines)),
        schedule=CronTriggerTimetable(schedule, timezone="UTC") if schedule else None,
    )
    with dag:

        @task(doc_md="Look, write down what is new, tell, hold.")  # type: ignore[untyped-decorator]
        def watch_drift() -> str:
            with explained():
                app = open_app(config_path)
                held = drift.watch_drift(app, source)
                app.alerts().end_alerts(DRIFT_RUN_FAILED, source)
                return held

        @task(doc_md="Take every approved switch as far as it goes now.")  # type: ignore[untyped-decorator]
        def switch_instances() -> str:
            return switch_dag.run_switch_instances(config_path, source)

        @task(doc_md="The switches that nobody has decided.")  # type: ignore[untyped-decorator]
        def list_questions() -> list[dict[str, Any]]:
            return switch_dag.list_questions(config_path, source)

        questions = list_questions()
        watch_drift() >> [switch_instances(), questions]
        TriggerDagRunOperator.partial(
            task_id="ask",
            trigger_dag_id=switch_dag.switch_dag_id(source),
            # Runs without a date can begin any number at once; the id of a run is the proposal's, so that there is one.
            logical_date=None,
            skip_when_already_exists=True,
            doc_md="One run per question; skipped where it has been asked.",
        ).expand_kwargs(questions)
    return dag
