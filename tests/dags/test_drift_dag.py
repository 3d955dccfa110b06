"""The DAG that looks for drift: one per source that a pipeline reads."""

from __future__ import annotations

from pathlib import Path

from floodmark.config.loading import load_config
from floodmark.orchestration.drift_dag import build_drift_dags

CONFIG = """
sources:
  shop: {conn_id: shop_mssql}
  rare: {conn_id: rare_mssql, drift: {schedule: null}}
  unread: {conn_id: unread_mssql}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
  more: {source: shop, tables: [{source: dbo.Lines, target: shop.lines}]}
  rare: {source: rare, tables: [{source: dbo.Orders, target: rare.orders}]}
"""


def test_every_source_that_is_read_has_one_dag_with_one_task(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    dags = build_drift_dags(load_config(path), path)
    assert sorted(dags) == ["cdc_drift_rare", "cdc_drift_shop"]
    shop = dags["cdc_drift_shop"]
    assert [task.task_id for task in shop.tasks] == ["watch_drift"]
    assert (shop.max_active_runs, shop.catchup) == (1, False)
    assert type(shop.timetable).__name__ == "CronTriggerTimetable"
    assert "tables of more, shop" in str(shop.doc_md)
    assert dags["cdc_drift_rare"].schedule is None
