"""The DAG that keeps the tables of a lake: which configuration has it, what it does, and how it fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk import DAG

from floodmark.app import upkeep
from floodmark.app.pipeline import App
from floodmark.config.loading import load_config
from floodmark.core.errors import ConfigError
from floodmark.core.naming import versions_name
from floodmark.core.schema import TableName
from floodmark.orchestration.dags import build_every_dag

LAKE = """
sources: {{shop: {{conn_id: shop_mssql}}}}
warehouse: {{kind: iceberg, conn_id: lake{more}}}
ledger: {{conn_id: warehouse}}
pipelines:
  {name}: {{source: shop, tables: [{{source: dbo.Orders, target: shop.orders{table}}}]}}
"""
CLEANED = TableName("shop", "orders")


def write(folder: Path, more: str = "", name: str = "shop", table: str = "") -> Path:
    path = folder / "pipelines.yaml"
    path.write_text(LAKE.format(more=more, name=name, table=table), encoding="utf-8")
    return path


def lake_dag(path: Path) -> DAG | None:
    return build_every_dag(load_config(path), path).get("cdc_lake_upkeep")


def test_lake_has_the_dag_and_a_warehouse_in_postgresql_has_none(tmp_path: Path) -> None:
    path = write(tmp_path, ", upkeep: {schedule: '5 4 * * 0', keep: 30d}")
    dag = lake_dag(path)
    assert dag is not None
    assert [task.task_id for task in dag.tasks] == ["keep_tables"]
    assert (dag.timetable.expression, dag.max_active_runs, dag.catchup) == ("5 4 * * 0", 1, False)
    assert "older than 30 days" in (dag.doc_md or "")
    page = str(build_every_dag(load_config(path), path)["cdc_shop"].doc_md)
    assert "into the lake" in page
    assert "with a Spark of its own" in page
    assert "Great Expectations" not in page
    postgres = path.read_text("utf-8").replace(
        "kind: iceberg, conn_id: lake, upkeep: {schedule: '5 4 * * 0', keep: 30d}", "conn_id: w"
    )
    path.write_text(postgres, encoding="utf-8")
    assert lake_dag(path) is None
    assert "Great Expectations" in str(build_every_dag(load_config(path), path)["cdc_shop"].doc_md)


def test_task_keeps_the_tables_as_configured_and_ends_the_alert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[object, ...]] = []
    ended: list[tuple[str, ...]] = []

    class Upkeep:
        def keep_tables(self, *about: object, rewrites: bool) -> Iterator[tuple[TableName, str]]:
            asked.append((*about, rewrites))
            yield CLEANED, "was 9 files; is 1 file"

    class Alerts:
        def end_alerts(self, *about: str) -> None:
            ended.append(about)

    monkeypatch.setattr(App, "lake_upkeep", Upkeep())
    monkeypatch.setattr(App, "alerts", Alerts())
    dag = lake_dag(write(tmp_path, table=", style: history, keep_versions: 7y"))
    assert dag is not None
    with caplog.at_level(logging.INFO, "floodmark"):
        assert dag.task_dict["keep_tables"].python_callable() == "1 table"
    assert "shop.orders: was 9 files; is 1 file." in caplog.text
    versions = versions_name(CLEANED)
    assert asked == [([CLEANED, versions], timedelta(days=7), {versions: 7 * 366}, False)]
    assert ended == [("lake_upkeep_failed", "lake")]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (", upkeep: {keep: -1d}", "warehouse.upkeep.keep"),
        (", upkeep: {schedule: often}", "warehouse.upkeep.schedule"),
    ],
)
def test_upkeep_that_cannot_be_is_refused(tmp_path: Path, more: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_config(write(tmp_path, more))


@pytest.mark.parametrize("setting", ["upkeep: {}", "catalog_conn_id: company"])
def test_settings_of_a_lake_are_refused_for_a_warehouse_in_postgresql(tmp_path: Path, setting: str) -> None:
    path = write(tmp_path, f", {setting}")
    path.write_text(path.read_text("utf-8").replace("kind: iceberg, ", ""), encoding="utf-8")
    with pytest.raises(ConfigError, match="it is for a warehouse of kind iceberg"):
        load_config(path)


def test_pipeline_may_not_have_the_id_of_the_dag(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cdc_lake_upkeep is the DAG of the upkeep of the lake"):
        load_config(write(tmp_path, name="lake_upkeep"))


def test_tables_are_registered_where_a_catalog_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it has no catalog_conn_id, which names a REST catalog"):
        upkeep.register_lake(App(load_config(write(tmp_path))))
    with pytest.raises(ConfigError, match="connection company: Airflow does not know it"):
        upkeep.register_lake(App(load_config(write(tmp_path, ", catalog_conn_id: company"))))
