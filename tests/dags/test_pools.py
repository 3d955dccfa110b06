"""Tasks that read are in the pool of their source; one that is not there is in the note and ends the first task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.pool import Pool
from airflow.sdk.exceptions import AirflowFailException
from dag_process import REPOSITORY, DagProcess

from floodmark.app.pipeline import App
from floodmark.config.loading import load_config
from floodmark.core.errors import ConfigError
from floodmark.orchestration.dags.pipelines import build_dag
from floodmark.orchestration.pools import CONF_KEY, on_dag_run_running, require_pools

CONFIG = """
sources: {shop: {conn_id: shop_mssql, pool: shop_reads}, free: {conn_id: free_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
  free: {source: free, tables: [{source: dbo.Orders, target: free.orders}]}
"""
PLUGIN = """
from airflow import plugins_manager
names = [listener.__name__ for plugin in plugins_manager._get_plugins()[0] for listener in plugin.listeners]
print("RESULT", names)
"""


@dataclass
class Run:
    """A run of a DAG as the scheduler shows it to a listener."""

    pools: tuple[str, ...]
    dag_id: str = "cdc_shop"
    tags: tuple[str, ...] = ("floodmark", "cdc")
    run_id: str = "scheduled__1"
    note: str | None = None
    conf: dict[str, Any] | None = None

    @property
    def dag(self) -> Any:
        return SimpleNamespace(tags=set(self.tags), tasks=[SimpleNamespace(pool=pool) for pool in self.pools])


@pytest.fixture
def airflow_has(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The pools of Airflow; no database is asked."""
    monkeypatch.setattr("sqlalchemy.orm.object_session", lambda run: object())

    def choose(*names: str) -> None:
        pools = [SimpleNamespace(pool=name) for name in names]
        monkeypatch.setattr(Pool, "get_pools", staticmethod(lambda *, session: pools))

    return choose


def begin(run: Run) -> None:
    on_dag_run_running(run, "started")  # type: ignore[arg-type]


def test_the_task_that_reads_is_in_the_pool_of_its_source_and_no_other_task_is(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    config = load_config(path)
    dag = build_dag(App(config).pipeline("shop"), path)
    assert "floodmark" in dag.tags
    pools = {task.task_id: task.pool for task in dag.tasks}
    assert pools["load"] == "shop_reads"
    assert {pools[name] for name in ("open_window", "check", "advance")} == {"default_pool"}
    assert {task.pool for task in build_dag(App(config).pipeline("free"), path).tasks} == {"default_pool"}


def test_a_missing_pool_is_in_the_note_of_the_run_and_ends_its_first_task(airflow_has: Any) -> None:
    airflow_has("default_pool")
    run = Run(("default_pool", "shop_reads"))
    begin(run)
    assert (run.note or "").startswith("there is no pool shop_reads")
    with pytest.raises(ConfigError, match=r"there is no pool shop_reads.*airflow pools set shop_reads"):
        require_pools("shop", run)


def test_a_pool_that_was_made_meanwhile_lets_a_cleared_run_go_on(airflow_has: Any) -> None:
    airflow_has("default_pool")
    run = Run(("default_pool", "shop_reads"))
    begin(run)
    airflow_has("default_pool", "shop_reads")
    begin(run)
    assert (run.note, run.conf) == (None, {})
    require_pools("shop", run)


def test_notes_of_people_and_runs_of_others_are_left_alone_and_no_database_is_asked_for_them() -> None:
    theirs = Run(("nowhere",), dag_id="cdc_theirs", tags=("cdc",), note="mine", conf={"a": 1})
    begin(theirs)
    ours = Run(("default_pool",), note="checked by Ada", conf={"table": "dbo.Orders"})
    begin(ours)
    assert (theirs.note, theirs.conf) == ("mine", {"a": 1})
    assert (ours.note, ours.conf) == ("checked by Ada", {"table": "dbo.Orders"})
    require_pools("shop", ours)


def test_open_window_fails_for_good_with_that_message(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    task = build_dag(App(load_config(path)).pipeline("shop"), path).get_task("open_window")
    run = SimpleNamespace(conf={CONF_KEY: "there is no pool shop_reads. Create it."}, run_type="scheduled")
    with pytest.raises(AirflowFailException, match="there is no pool shop_reads"):
        task.python_callable(dag_run=run)


def test_the_plugin_registers_the_listener(dag_process: DagProcess) -> None:
    done = dag_process.run(PLUGIN, AIRFLOW__CORE__PLUGINS_FOLDER=str(REPOSITORY / "plugins"))
    assert "floodmark.orchestration.pools" in done.stdout, done.stderr
