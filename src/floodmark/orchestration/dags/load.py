"""One DAG per pipeline, ``cdc_load_<pipeline>``, for loads of single tables in parallel to its windows: repairs, and
reloads that the operator requests with the params of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset, CronTriggerTimetable, Param, task

from floodmark.core.alerts.runs import LOAD_RUN_FAILED
from floodmark.core.schema import TableName
from floodmark.orchestration import tasks
from floodmark.orchestration.dags.cdc import assets_of
from floodmark.orchestration.dags.frame import is_needed, make_dag
from floodmark.orchestration.dags.load_chain import chain_load
from floodmark.orchestration.failure import explained
from floodmark.orchestration.pools import require_pools
from floodmark.wiring.pipelines import PipelineWiring, wire

if TYPE_CHECKING:
    from floodmark.config.models import Config

_PAGE = """# Loads of pipeline {name}

While a table is reloaded, it is left out of the windows of its pipeline. Its old rows stay readable, and the other
tables continue. Each run loads one table. A run after a killed one reads only the missing chunks.

* Without params, a run continues the oldest unfinished load: a repair that a gap has opened (`on_gap: repair`), or a
  reload that was interrupted. If there is none, the run ends as skipped.
* With `table`, that table is reloaded, and rows that no longer exist at the source are swept.
* With `where` as well, a condition in T-SQL such as `Region = N'north'`, only the rows for which it is true are read
  and merged. Nothing is swept, and the watermark does not move.
"""


def build_load_dags(config: Config, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per pipeline of the configuration, by id; in the process of a task, that of the task."""
    dags = (_build(config, name, config_path) for name in config.pipelines if is_needed(load_dag_id(name)))
    return {dag.dag_id: dag for dag in dags}


def load_dag_id(pipeline: str) -> str:
    """Return the id of a pipeline's DAG of single loads."""
    return f"cdc_load_{pipeline}"


def _build(config: Config, name: str, config_path: Path) -> DAG:
    pipeline = config.pipeline(name)
    wiring = wire(config, name)
    tables = [str(table) for table in wiring.settings.sources]
    dag = make_dag(
        load_dag_id(name),
        source=pipeline.source,
        tags=("load",),
        config_path=config_path,
        failed=LOAD_RUN_FAILED,
        subject=name,
        description=f"Repairs and reloads of single tables of {name}, in parallel to its windows",
        doc_md=_PAGE.format(name=name),
        schedule=CronTriggerTimetable(pipeline.schedule, timezone="UTC") if pipeline.schedule else None,
    )
    with dag:
        _add_tasks(wiring, config_path, assets_of(wiring), config.sources[pipeline.source].pool)
    # After the tasks: each would take a copy, and Airflow validates every copy whenever it parses the file.
    dag.params.update(_params(tables))
    return dag


def _params(tables: Sequence[str]) -> dict[str, Param]:
    return {
        "table": Param(None, type=["null", "string"], enum=[None, *tables], description="The table to reload."),
        "where": Param(
            None,
            type=["null", "string"],
            maxLength=4000,
            description="Only rows for which this T-SQL condition over the table's columns is true.",
        ),
    }


def _add_tasks(wiring: PipelineWiring, config_path: Path, assets: Mapping[TableName, Asset], pool: str | None) -> None:
    """Add the tasks to the DAG. pool: for the task that reads the source."""
    name = wiring.settings.name

    @task(doc_md="Continue an unfinished load, or plan the requested one.")  # type: ignore[untyped-decorator]
    def open_load(params: Any = None, dag_run: Any = None) -> int:
        with explained():
            require_pools(name, dag_run)
        return tasks.record_run(wiring, tasks.run_open_load(config_path, name, params), dag_run)

    @task(outlets=list(assets.values()), doc_md="Publish the load.")  # type: ignore[untyped-decorator]
    def advance(window_id: int, outlet_events: Any = None, asset_state_store: Any = None) -> None:
        tasks.run_advance_load(
            wiring, config_path, window_id, assets=assets, events=outlet_events, stores=asset_state_store
        )

    opened = open_load()
    chain_load(
        wiring,
        config_path,
        pool,
        opened=opened,
        advanced=advance(opened),
        job=f"floodmark load {name}",
        doc_md="One Spark job: read the missing chunks, then merge and sweep in one transaction.",
    )
