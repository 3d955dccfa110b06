"""One DAG per source whose retention is guarded, ``cdc_retention_<source>``: a single task, which looks how much time
is left before cleanup passes a watermark, and brings the cleanup job to the state that is wanted for now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import DAG, CronTriggerTimetable, task

from floodmark.app import upkeep
from floodmark.config.retention import RetentionConfig
from floodmark.core.alerts.runs import RETENTION_RUN_FAILED
from floodmark.orchestration.context import app_of
from floodmark.orchestration.dags.frame import make_dag
from floodmark.orchestration.failure import explained

if TYPE_CHECKING:
    from floodmark.config.models import Config


def build_retention_dags(config: Config, config_path: Path) -> dict[str, DAG]:
    """By id, one per source with ``retention``."""
    dags = (
        _build(config, name, source.retention, config_path)
        for name, source in config.sources.items()
        if source.retention is not None
    )
    return {dag.dag_id: dag for dag in dags}


def _build(config: Config, source: str, retention: RetentionConfig, config_path: Path) -> DAG:
    """A run that was missed is not made up for: the next one does the same."""
    dag = make_dag(
        f"cdc_retention_{source}",
        source=source,
        tags=("retention",),
        config_path=config_path,
        failed=RETENTION_RUN_FAILED,
        subject=source,
        description=f"How long source {source} keeps its changes, against how far its readers are",
        doc_md=_describe(source, retention),
        schedule=CronTriggerTimetable(retention.schedule, timezone="UTC"),
    )
    with dag:

        @task(doc_md="Forecast, tell, raise or give back.")  # type: ignore[untyped-decorator]
        def keep_retention() -> str:
            return run_keep_retention(config, source, retention)

        keep_retention()
    return dag


def run_keep_retention(config: Config, source: str, retention: RetentionConfig) -> str:
    """Return the forecast and what was done, in one sentence."""
    with explained():
        return upkeep.keep_retention(app_of(config), source, retention)


def _describe(source: str, retention: RetentionConfig) -> str:
    """Markdown."""
    keep = f"`{retention.keep}`" if retention.keep else "as it is"
    margin = (
        f"Changes older than the slowest watermark by more than {retention.cleanup_margin} are cleaned up in each run."
        if retention.cleanup_margin
        else "Cleaning up is left to the server's own job."
    )
    return (
        f"# The retention of {source}\n\n"
        "Each run forecasts when the server's cleanup passes the slowest watermark of the pipelines that read this "
        f"source. Less than {retention.headroom_limit} is an alert; then: `{retention.on_low.value}`. The retention is "
        f"otherwise kept {keep}.\n\n{margin}\n"
    )
