"""The task after the opening of a window: it starts the DAGs of loads and of drift where they have work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.context import OutletEventAccessors

from floodmark.core.schema import TableName
from floodmark.orchestration.dags import pipelines

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines: {shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}}
"""
QUESTION = SimpleNamespace(key="1-abc", subject="dbo.Orders: capture Note?")


class Follow:
    """Calls the task; ``waiting``, ``questions`` and ``asked`` are what it finds."""

    def __init__(self, dag: DAG) -> None:
        self.task = dag.get_task("follow_up")
        self.waiting: list[TableName] = []
        self.questions: list[Any] = []
        self.asked: set[str] = set()

    def find_drift_work(self, _app: object, _source: str, is_asked: Any) -> str:
        return "" if is_asked(self.questions) else "a question"

    def get_dr_count(self, dag_id: str, run_ids: list[str]) -> int:
        assert dag_id == "cdc_switch_shop"
        return len(self.asked.intersection(run_ids))

    def started(self, run_type: str = "scheduled") -> list[str]:
        """Return the assets of which the task emits an event."""
        events = OutletEventAccessors()
        self.task.python_callable(outlet_events=events, ti=self, dag_run=SimpleNamespace(run_type=run_type))
        (alias,) = self.task.outlets
        return [event.dest_asset_key.name for event in events[alias].asset_alias_events]


@pytest.fixture
def follow(dags: dict[str, DAG], monkeypatch: pytest.MonkeyPatch) -> Follow:
    made = Follow(dags["cdc_shop"])
    monkeypatch.setattr(pipelines, "list_waiting", lambda pipeline: made.waiting)
    monkeypatch.setattr(pipelines, "find_drift_work", made.find_drift_work)
    return made


def test_run_that_finds_no_work_starts_nothing(follow: Follow) -> None:
    assert follow.started() == []


def test_load_that_waits_starts_the_dag_of_loads(follow: Follow, dags: dict[str, DAG]) -> None:
    follow.waiting = [TableName("dbo", "Orders")]
    assert follow.started() == [asset.name for asset in dags["cdc_load_shop"].schedule]


def test_question_starts_the_drift_dag_until_a_run_asks_it(follow: Follow, dags: dict[str, DAG]) -> None:
    follow.questions = [QUESTION]
    assert follow.started() == [asset.name for asset in dags["cdc_drift_shop"].schedule]
    follow.asked = {"drift_event_1-abc"}
    assert follow.started() == []


def test_backfill_starts_nothing(follow: Follow) -> None:
    follow.waiting, follow.questions = [TableName("dbo", "Orders")], [QUESTION]
    assert follow.started("backfill") == []


def test_drift_dag_starts_the_loads_that_a_switch_has_opened(
    dags: dict[str, DAG], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "list_waiting", lambda pipeline: [TableName("dbo", "Orders")])
    monkeypatch.setattr("floodmark.orchestration.dags.upkeep.run_switch_instances", lambda *_: "it waits.")
    task: Any = dags["cdc_drift_shop"].get_task("switch_instances")
    events = OutletEventAccessors()
    assert task.python_callable(outlet_events=events) == "it waits."
    (event,) = events[task.outlets[0]].asset_alias_events
    assert event.dest_asset_key.name == "floodmark.work.cdc_load_shop"
