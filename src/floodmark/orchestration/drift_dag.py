"""One DAG per source, ``cdc_drift_<source>``: a single task, which looks for schema drift."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import DAG, CronTriggerTimetable, task

from floodmark.core.run_alerts import DRIFT_RUN_FAILED
from floodmark.orchestration.dag_frame import make_dag
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
"""


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
        subject=source,
        description=f"Schema drift of the tables of source {source}",
        doc_md=_PAGE.format(source=source, pipelines=", ".join(pipelines)),
        schedule=CronTriggerTimetable(schedule, timezone="UTC") if schedule else None,
    )
    with dag:

        @task(doc_md="Look, write down what is new, tell, hold.")  # type: ignore[untyped-decorator]
        def watch_drift() -> str:
            from floodmark.config.loading import load_config  # noqa: PLC0415
            from floodmark.orchestration.alerting import alerts_of  # noqa: PLC0415
            from floodmark.orchestration.drift_watch import run_watch  # noqa: PLC0415

            with explained():
                loaded = load_config(config_path)
                said = run_watch(loaded, source)
                alerts_of(loaded).end_alerts(DRIFT_RUN_FAILED, source)
                return said

        watch_drift()
    return dag
