"""The DAG that checks for drift: one per source that a pipeline reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG
from airflow.sdk.definitions.mappedoperator import MappedOperator

from floodmark.app.pipeline import App
from floodmark.config.loading import load_config
from floodmark.orchestration.dags.pipelines import work_of
from floodmark.orchestration.dags.upkeep import build_drift_dags

CONFIG = """
sources:
  shop: {conn_id: shop_mssql}
  rare: {conn_id: rare_mssql, drift: {schedule: "*/5 * * * *"}}
  unread: {conn_id: unread_mssql}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
  more: {source: shop, tables: [{source: dbo.Lines, target: shop.lines}]}
  rare: {source: rare, tables: [{source: dbo.Orders, target: rare.orders}]}
"""


@pytest.fixture
def dags(tmp_path: Path) -> dict[str, DAG]:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return build_drift_dags(App(load_config(path)), path)


def test_every_source_that_is_read_has_one_dag(dags: dict[str, DAG]) -> None:
    assert sorted(dags) == ["cdc_drift_rare", "cdc_drift_shop"]
    shop = dags["cdc_drift_shop"]
    assert (shop.max_active_runs, shop.catchup) == (1, False)
    assert shop.schedule == [work_of("cdc_drift_shop")]
    assert "tables of more, shop" in str(shop.doc_md)
    also_by_clock: Any = dags["cdc_drift_rare"].schedule
    assert also_by_clock.timetable.expression == "*/5 * * * *"
    assert list(also_by_clock.asset_condition.objects) == [work_of("cdc_drift_rare")]


def test_drift_is_checked_first_and_switches_neither_stop_the_check_nor_the_questions(dags: dict[str, DAG]) -> None:
    upstream = {task.task_id: task.upstream_task_ids for task in dags["cdc_drift_shop"].tasks}
    assert upstream == {
        "watch_drift": set(),
        "switch_instances": {"watch_drift"},
        "list_questions": {"watch_drift"},
        "ask": {"list_questions"},
    }


def test_question_is_asked_by_a_run_of_its_own_that_is_started_once(dags: dict[str, DAG]) -> None:
    ask = dags["cdc_drift_shop"].get_task("ask")
    assert isinstance(ask, MappedOperator)
    assert ask.operator_class is TriggerDagRunOperator
    fixed = ask.partial_kwargs
    assert (fixed["trigger_dag_id"], fixed["logical_date"]) == ("cdc_switch_shop", None)
    assert fixed["skip_when_already_exists"] is True
