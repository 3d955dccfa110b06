"""The tasks of a pipeline in a DAG of the user's own, the examples of the documents, and the section ``airflow``."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, AssetAll
from dag_process import REPOSITORY, DagProcess

from floodmark.config.loading import load_config
from floodmark.core.errors import ConfigError
from floodmark.dags import FloodmarkTaskGroup
from floodmark.orchestration.dags import build_every_dag
from floodmark.orchestration.dags.pipelines import work_of

EXAMPLES = REPOSITORY / "docs" / "examples"
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    airflow: &airflow
      timezone: Europe/Berlin
      tags: [finance]
      default_args: {retries: 5, retry_delay: 2m, queue: floods}
      load_operator_args: {execution_timeout: 4h, executor_config: {Own: {}}, conf: {spark.cores.max: "4"}}
    schedule: "0 6 * * *"
    tables: [{source: dbo.Orders, target: shop.orders}]
  late.lines:
    source: shop
    airflow: {after_assets: ["floodmark://shop/shop/orders", "s3://bucket/done"]}
    tables: [{source: dbo.Lines, target: shop.lines}]
"""
_TASKS = ["open_window", "load", "check", "follow_up", "advance", "report_gaps"]
_PARSE = """
import json
from airflow.dag_processing.dagbag import DagBag
bag = DagBag({folder!r})
print("RESULT " + json.dumps([bag.import_errors, {{name: sorted(dag.task_ids) for name, dag in bag.dags.items()}}]))
"""


def test_dags_have_the_arguments_of_the_section(dags: dict[str, DAG]) -> None:
    for name in ("cdc_shop", "cdc_load_shop"):
        dag = dags[name]
        assert {"floodmark", "finance"} <= dag.tags
        load, check = dag.get_task("load"), dag.get_task("check")
        assert (check.retries, check.retry_delay, check.queue) == (5, timedelta(minutes=2), "floods")
        assert (load.queue, load.execution_timeout) == ("floods", timedelta(hours=4))
        assert load.executor_config == {"Own": {}}
        assert load.conf == {"spark.cores.max": "4"}
        assert check.execution_timeout is None
    schedule: Any = dags["cdc_shop"].schedule
    assert (schedule.expression, schedule.timezone) == ("0 6 * * *", "Europe/Berlin")
    assert "`0 6 * * *` (Europe/Berlin)" in str(dags["cdc_shop"].doc_md)
    assert dags["cdc_drift_shop"].tags == {"floodmark", "cdc", "drift", "source:shop"}


def test_pipeline_may_follow_assets_instead_of_a_clock(dags: dict[str, DAG]) -> None:
    schedule: Any = dags["cdc_late.lines"].schedule
    assert isinstance(schedule, AssetAll)
    assert {each.uri for each in schedule.objects} == {"floodmark://shop/shop/orders", "s3://bucket/done"}
    assert dags["cdc_load_late.lines"].schedule == [work_of("cdc_load_late.lines")]


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("{default_args: {retires: 3}}", "retires"),
        ("{default_args: {conf: {a: b}}}", "conf"),
        ("{load_operator_args: {application: x.py}}", "application"),
        ("{after_assets: [orders]}", "after_assets"),
        ("{after_assets: ['a://b']}", "after_assets takes the place of schedule"),
        ("{timezone: Berlin}", "not a time zone"),
    ],
)
def test_wrong_section_is_refused_by_name(tmp_path: Path, section: str, problem: str) -> None:
    path = tmp_path / "pipelines.yaml"
    begin, end = CONFIG.index("airflow: &airflow"), CONFIG.index("    schedule: ")
    path.write_text(f"{CONFIG[:begin]}airflow: {section}\n{CONFIG[end:]}", encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        load_config(path)


def test_group_has_the_tasks_of_a_run_with_the_arguments_of_its_user(config_file: Path) -> None:
    with DAG("mine", schedule=None, max_active_runs=1, default_args={"retries": 1, "owner": "me"}) as dag:
        group = FloodmarkTaskGroup("shop", config=config_file, default_args={"queue": "mine"})
    assert [each.task_id.removeprefix("shop.") for each in dag.topological_sort()] == _TASKS
    load = dag.get_task("shop.load")
    assert (load.retries, load.queue, load.execution_timeout) == (5, "mine", timedelta(hours=4))
    assert load.application_args[1] == "{{ ti.xcom_pull(task_ids='shop.open_window') }}"
    assert all(len(each.on_failure_callback) == 1 for each in dag.tasks)
    assert "floodmark" in dag.tags
    assert group.group_id == "shop"


def test_groups_of_several_pipelines_keep_the_callbacks_of_the_dag(config_file: Path) -> None:
    def notify(_: Any) -> None: ...

    def page(_: Any) -> None: ...

    with DAG("mine", schedule=None, max_active_runs=1, default_args={"on_failure_callback": notify}) as dag:
        FloodmarkTaskGroup("shop", config=config_file) >> FloodmarkTaskGroup(
            "late.lines", config=config_file, default_args={"on_failure_callback": [page]}
        )
    assert len(dag.task_ids) == 2 * len(_TASKS)
    assert dag.get_task("shop.load").on_failure_callback[1:] == [notify]
    load = dag.get_task("late_lines.load")
    assert load.on_failure_callback[1:] == [page]
    assert load.application_args[1] == "{{ ti.xcom_pull(task_ids='late_lines.open_window') }}"
    assert dag.get_task("late_lines.open_window").upstream_task_ids == {"shop.report_gaps"}


def test_group_refuses_a_dag_whose_runs_would_compete(config_file: Path) -> None:
    with DAG("mine", schedule=None, max_active_runs=2), pytest.raises(ConfigError, match="max_active_runs=1"):
        FloodmarkTaskGroup("shop", config=config_file)
    with DAG("other", schedule=None, max_active_runs=1), pytest.raises(ConfigError, match="no such pipeline"):
        FloodmarkTaskGroup("shops", config=config_file)


def test_examples_of_the_documents_are_parsed_as_airflow_does(dag_process: DagProcess, config_file: Path) -> None:
    done = dag_process.run(_PARSE.format(folder=str(EXAMPLES)), FLOODMARK_CONFIG=str(config_file))
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    errors, found = json.loads(line.removeprefix("RESULT "))
    assert errors == {}
    assert found == {
        "dbt_orders": ["dbt"],
        "nightly_orders": ["refresh_report", *sorted(f"shop.{task}" for task in _TASKS)],
        "orders_of_the_hour": ["summarize", "wait"],
    }


def test_assets_of_the_examples_are_those_of_the_pipeline(config_file: Path) -> None:
    made = build_every_dag(load_config(config_file), config_file)
    uris = {asset.uri for asset in made["cdc_shop"].get_task("advance").outlets}
    assert uris == {"floodmark://shop/shop/orders"}
    assert "floodmark://shop/shop/{table}" in (EXAMPLES / "dbt_after_window.py").read_text("utf-8")
