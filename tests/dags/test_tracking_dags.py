"""The DAGs of a source that is read by change tracking: without jobs, capture instances and replays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.types import DagRunType
from typer.testing import CliRunner

from alert_receivers import Posts
from floodmark.cli.main import app
from floodmark.cli.process import EXIT_CONFIG

CONFIG = """
sources:
  express: {conn_id: express_mssql, kind: change_tracking}
  shop: {conn_id: shop_mssql}
  vans: {conn_id: vans, kind: compact}
warehouse: {conn_id: warehouse}
alerts: {channels: [{kind: webhook, conn_id: chat}]}
pipelines:
  express: {source: express, schedule: "@hourly", tables: [{source: dbo.Orders, target: express.orders}]}
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
  vans: {source: vans, tables: [{source: main.orders, target: vans.orders}]}
"""
BEGIN = datetime(2026, 5, 1, 10, tzinfo=UTC)
NO_HISTORY = "the source keeps only the newest change of each key: the kind of the source is change_tracking"
CDC_ONLY = ("capture instance", "capture job", "change data capture", "LSN", "cdc_switch")


def test_only_a_source_with_capture_instances_has_a_switch_dag(dags: dict[str, DAG]) -> None:
    assert sorted(name for name in dags if "express" in name) == [
        "cdc_drift_express",
        "cdc_express",
        "cdc_load_express",
    ]
    assert "cdc_switch_shop" in dags
    assert dags["cdc_drift_express"].task_ids == ["watch_drift"]


def test_fleet_has_the_dags_of_a_source_without_jobs_and_history(dags: dict[str, DAG]) -> None:
    assert sorted(name for name in dags if "vans" in name) == ["cdc_drift_vans", "cdc_load_vans", "cdc_vans"]
    assert "by the tracking in the files of devices." in str(dags["cdc_vans"].doc_md)
    assert "airflow backfill` is refused" in str(dags["cdc_vans"].doc_md)


def test_pages_say_how_the_changes_are_read(dags: dict[str, DAG]) -> None:
    assert "by SQL Server Change Tracking." in str(dags["cdc_express"].doc_md)
    assert "| by server |" in str(dags["cdc_express"].doc_md)
    assert "by SQL Server's own change data capture." in str(dags["cdc_shop"].doc_md)
    for name in ("cdc_drift_express", "cdc_express", "cdc_load_express"):
        texts = [dags[name].description, dags[name].doc_md, *(task.doc_md for task in dags[name].tasks)]
        shown = " ".join(filter(None, texts))
        assert [words for words in CDC_ONLY if words in shown] == []
    assert "airflow backfill` is refused" in str(dags["cdc_express"].doc_md)
    assert "airflow backfill` is refused" not in str(dags["cdc_shop"].doc_md)


def test_backfill_fails_for_good_with_the_reason(dags: dict[str, DAG]) -> None:
    run = SimpleNamespace(
        run_type=DagRunType.BACKFILL_JOB,
        data_interval_start=BEGIN,
        data_interval_end=BEGIN + timedelta(hours=1),
        conf={},
    )
    with pytest.raises(AirflowFailException, match=f"{NO_HISTORY}.*floodmark reload"):
        dags["cdc_express"].get_task("open_window").python_callable(dag_run=run)


def test_refused_backfill_leaves_no_alert_open(dags: dict[str, DAG], posts: Posts) -> None:
    for name, title in (("cdc_express", []), ("cdc_shop", ["*Floodmark: replay failed: shop*"])):
        callback = dags[name].on_failure_callback
        assert callable(callback)
        callback({"dag": dags[name], "run_id": "backfill__2026-05-01"})
        assert [text.splitlines()[0] for text in posts.texts] == title


def test_replay_of_the_command_is_refused_with_the_reason(config_file: Path) -> None:
    bounds = ["--from-lsn", "1", "--to-lsn", "2", "--config", str(config_file)]
    refused = CliRunner().invoke(app, ["replay", "express", *bounds])
    assert refused.exit_code == EXIT_CONFIG
    assert NO_HISTORY in " ".join(refused.output.split())


def test_switch_of_the_command_says_that_there_is_nothing_to_switch(config_file: Path) -> None:
    done = CliRunner().invoke(app, ["drift", "switch", "express", "--config", str(config_file)])
    assert done.exit_code == 0
    assert "has no capture instances" in done.output
