"""One DAG per source whose retention is guarded, ``cdc_retention_<source>``. Its single task forecasts when cleanup
passes a watermark, and brings the cleanup job to the state that is wanted now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import DAG, CronTriggerTimetable, task

from floodmark.app import upkeep
from floodmark.config.retention import RetentionConfig
from floodmark.core.alerts.runs import RETENTION_RUN_FAILED
from floodmark.orchestration.context import app_of
from floodmark.orchestration.dags.frame import is_needed, make_dag
from floodmark.orchestration.failure import explained

if TYPE_CHECKING:
    from floodmark.config.models import Config


def build_retention_dags(config: Config, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per source with ``retention``, by id; in the process of a task, that of the task."""
    dags = (
        _build(config, name, source.retention, config_path)
        for name, source in config.sources.items()
        if source.retention is not None and is_needed(_dag_id(name))
    )
    return {dag.dag_id: dag for dag in dags}


def _dag_id(source: str) -> str:
    return f"cdc_retention_{source}"


def _build(config: Config, source: str, retention: RetentionConfig, config_path: Path) -> DAG:
    """Build the DAG. A missed run is not repeated: the next one does the same."""
    dag = make_dag(
        _dag_id(source),
        source=source,
        tags=("retention",),
        config_path=config_path,
        failed=RETENTION_RUN_FAILED,
        subject=source,
        description=f"The retention of source {source}, compared with the watermarks of its readers",
        doc_md=_describe(source, retention),
        schedule=CronTriggerTimetable(retention.schedule, timezone="UTC"),
    )
    with dag:

        @task(doc_md="Forecast, raise alerts, raise or restore the retention.")  # type: ignore[untyped-decorator]
        def keep_retention() -> str:
            return run_keep_retention(config, source, retention)

        keep_retention()
    return dag


def run_keep_retention(config: Config, source: str, retention: RetentionConfig) -> str:
    """Return the forecast and what was done, in one sentence."""
    with explained():
        return upkeep.keep_retention(app_of(config), source, retention)


def _describe(source: str, retention: RetentionConfig) -> str:
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
