"""The DAG for repairs and reloads: its tasks, its params, and what a run with params asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.param import process_params
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, ParamValidationError

from floodmark.app import run
from floodmark.app.pipeline import App
from floodmark.config.loading import load_config
from floodmark.core.schema import TableName
from floodmark.orchestration import tasks
from floodmark.orchestration.dags.pipelines import build_load_dags, work_of
from floodmark.orchestration.load_operator import LoadWindow
from floodmark.sync.window import OpenResult

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: "*/5 * * * *"
    tables: [{source: dbo.Orders, target: shop.orders}, {source: dbo.Items, target: shop.items}]
"""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.fixture
def dag(config_file: Path) -> DAG:
    dags = build_load_dags(App(load_config(config_file)), config_file)
    assert list(dags) == ["cdc_load_shop"]
    return dags["cdc_load_shop"]


def test_load_dag_runs_its_four_tasks_one_after_the_other_and_never_twice_at_once(dag: DAG) -> None:
    assert [task.task_id for task in dag.topological_sort()] == ["open_load", "load", "check", "advance"]
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    run = dag.get_task("load")
    assert isinstance(run, LoadWindow)
    assert run.application_args[1] == "{{ ti.xcom_pull(task_ids='open_load') }}"


def test_load_dag_has_no_clock_and_follows_the_runs_of_its_pipeline_where_a_load_waits(dag: DAG) -> None:
    assert dag.schedule == [work_of("cdc_load_shop")]
    assert type(dag.timetable).__name__ == "AssetTriggeredTimetable"


def test_params_offer_the_tables_of_the_pipeline_and_are_empty_by_default(dag: DAG) -> None:
    assert dag.params.dump() == {"table": None, "where": None}
    assert dag.params.get_param("table").schema["enum"] == [None, "dbo.Orders", "dbo.Items"]


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what the planner is asked for; it opens window 7, or nothing where nothing is pending."""
    asked: list[Any] = []

    class FakeLoadPlanner:
        def open_pending(self) -> OpenResult:
            asked.append("pending")
            return OpenResult(None, "no table of the pipeline is to be reloaded.")

        def open_reload(self, table: TableName, where: str) -> OpenResult:
            asked.append((str(table), where))
            return OpenResult(7, "a new window")

    for module in (run, tasks):
        monkeypatch.setattr(module, "load_planner", lambda pipeline: FakeLoadPlanner())
    return asked


def test_tasks_take_the_params_of_the_dag_and_have_no_copies(dag: DAG) -> None:
    """Airflow validates every copy at each parse of the file: most of the time of a file with many DAGs."""
    assert not any(task.params for task in dag.tasks)
    opened = dag.get_task("open_load")
    given = process_params(dag, opened, {"table": "dbo.Orders"}, suppress_exception=False)
    assert given == {"table": "dbo.Orders", "where": None}
    with pytest.raises(ParamValidationError, match="table"):
        process_params(dag, opened, {"table": "dbo.Unknown"}, suppress_exception=False)


def test_run_without_params_ends_as_skipped_when_nothing_is_pending(config_file: Path, planner: list[Any]) -> None:
    with pytest.raises(AirflowSkipException, match="no table of the pipeline is to be reloaded"):
        tasks.run_open_load(config_file, "shop", {"table": None, "where": None})
    assert planner == ["pending"]


def test_run_with_params_reloads_the_table_where_the_checked_condition_is_true(
    config_file: Path, planner: list[Any]
) -> None:
    assert tasks.run_open_load(config_file, "shop", {"table": "dbo.Orders", "where": "Id>5"}) == 7
    assert planner == [("dbo.Orders", "Id > 5")]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"table": None, "where": "Id > 5"}, "given without a table"),
        ({"table": "dbo.Orders", "where": "1 = 1; DROP TABLE x"}, "it contains a semicolon"),
        ({"table": "Orders"}, "not a table name"),
    ],
)
def test_params_that_mean_nothing_fail_for_good(
    config_file: Path, planner: list[Any], params: dict[str, Any], words: str
) -> None:
    with pytest.raises(AirflowFailException, match=words):
        tasks.run_open_load(config_file, "shop", params)
    assert planner == []
