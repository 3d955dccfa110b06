"""One DAG per pipeline, ``cdc_<pipeline>``: open_window, load, check, advance, report_gaps.

Airflow parses a DAG file again and again, so heavy imports are avoided: Airflow, pydantic and YAML only. What the tasks
need is imported when they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, task
from airflow.sdk.exceptions import AirflowSkipException

from floodmark.core.alerts.runs import RUN_FAILED, data_interval
from floodmark.core.schema import TableName
from floodmark.orchestration import tasks
from floodmark.orchestration.callbacks import BACKFILL, deadline_of
from floodmark.orchestration.dags.frame import is_needed, make_dag
from floodmark.orchestration.dags.load_chain import chain_load
from floodmark.orchestration.dags.page import describe_pipeline
from floodmark.orchestration.failure import explained
from floodmark.orchestration.pools import require_pools
from floodmark.wiring.pipelines import PipelineWiring, wire

if TYPE_CHECKING:
    from floodmark.config.models import Config


def build_dags(config: Config, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per pipeline of the configuration, by id; in the process of a task, that of the task."""
    dags = (build_dag(config, name, config_path) for name in config.pipelines if is_needed(dag_id(name)))
    return {dag.dag_id: dag for dag in dags}


def build_dag(config: Config, name: str, config_path: Path) -> DAG:
    """Build the DAG of a pipeline. It has one run at a time: two runs would compete for the same watermarks."""
    pipeline = config.pipeline(name)
    wiring = wire(config, name)
    dag = make_dag(
        dag_id(name),
        source=pipeline.source,
        config_path=config_path,
        failed=RUN_FAILED,
        subject=name,
        description=f"Changes of source {pipeline.source} into the warehouse, window by window",
        doc_md=describe_pipeline(name, pipeline, wiring),
        schedule=CronDataIntervalTimetable(pipeline.schedule, timezone="UTC") if pipeline.schedule else None,
        deadline=deadline_of(config_path, name, pipeline),
    )
    with dag:
        _add_tasks(wiring, config_path, assets_of(wiring), config.sources[pipeline.source].pool)
    return dag


def dag_id(pipeline: str) -> str:
    """Return the id of a pipeline's DAG."""
    return f"cdc_{pipeline}"


def assets_of(wiring: PipelineWiring) -> Mapping[TableName, Asset]:
    """Return the targets as assets, ``floodmark://<pipeline>/<schema>/<table>``, by source table."""
    return {table.source: _asset(wiring.settings.name, table.source, table.target) for table in wiring.settings.tables}


def _asset(pipeline: str, source: TableName, target: TableName) -> Asset:
    path = "/".join(quote(part, safe="") for part in (pipeline, target.schema, target.name))
    return Asset(
        name=f"{pipeline}.{target}", uri=f"floodmark://{path}", group="floodmark", extra={"source": str(source)}
    )


def _add_tasks(wiring: PipelineWiring, config_path: Path, assets: Mapping[TableName, Asset], pool: str | None) -> None:
    """Add the tasks to the DAG. pool: for the task that reads the source."""
    outlets = list(assets.values())

    @task(doc_md="Return an unfinished window, or plan the next.")  # type: ignore[untyped-decorator]
    def open_window(dag_run: Any = None) -> int:
        with explained():
            require_pools(wiring.settings.name, dag_run)
        if dag_run.run_type == BACKFILL:
            begin, end = dag_run.data_interval_start, dag_run.data_interval_end
            try:
                opened = tasks.run_open_replay(config_path, wiring.settings.name, begin, end)
            except AirflowSkipException:
                tasks.end_backfill(config_path, wiring.settings.name, data_interval(begin, end))
                raise
        else:
            opened = tasks.run_open_window(config_path, wiring.settings.name)
        return tasks.record_run(wiring, opened, dag_run)

    @task(outlets=outlets, doc_md="Move the watermarks by compare-and-set.")  # type: ignore[untyped-decorator]
    def advance(window_id: int, outlet_events: Any = None, asset_state_store: Any = None, dag_run: Any = None) -> None:
        tasks.run_advance(wiring, config_path, window_id, assets=assets, events=outlet_events, stores=asset_state_store)
        if dag_run.run_type == BACKFILL:
            replayed = data_interval(dag_run.data_interval_start, dag_run.data_interval_end)
            tasks.end_backfill(config_path, wiring.settings.name, replayed)

    # It is a task of its own, because Airflow drops the asset events of a task that fails.
    @task(doc_md="Fail while a table is left out. The other tables are published before.")  # type: ignore[untyped-decorator]
    def report_gaps(dag_run: Any = None) -> None:
        if dag_run.run_type != BACKFILL:
            tasks.run_report_gaps(wiring)

    opened = open_window()
    advanced = advance(opened)
    chain_load(
        wiring,
        config_path,
        pool,
        opened=opened,
        advanced=advanced,
        job=f"floodmark {wiring.settings.name}",
        doc_md="One Spark job for all tables: read, net and stage the changes, then merge all in one transaction.",
    )
    advanced >> report_gaps()
