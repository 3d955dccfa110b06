"""The examples of the documents under Airflow: a pipeline's tasks in a DAG of the user's own, and a sensor after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from cdc_database import cdc_database
from command_line import command_environment
from emulator_process import Emulator
from prepared_folders import PreparedPostgres

pytestmark = pytest.mark.timeout(600)

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
"""
_FAILED = {
    "refresh_report": "upstream_failed",
    "shop.advance": "upstream_failed",
    "shop.check": "upstream_failed",
    "shop.follow_up": "success",
    "shop.load": "upstream_failed",
    "shop.open_window": "failed",
    "shop.report_gaps": "upstream_failed",
}
_RUNS = """
from datetime import datetime, timezone
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.db import initdb

initdb()
dags = DagBag({folder!r}).dags
past = datetime(2026, 1, 2, tzinfo=timezone.utc)
for dag_id, at in (("nightly_orders", None), ("nightly_orders", None), ("orders_of_the_hour", past)):
    run = dags[dag_id].test(logical_date=at, use_executor=False)
    print("RESULT", dag_id, *sorted(f"{{ti.task_id}}={{ti.state}}" for ti in run.get_task_instances()), flush=True)
"""


def test_pipeline_runs_in_a_dag_of_the_user_and_a_sensor_sees_its_watermark(
    emulator: Emulator, open_dir: Path, tmp_path: Path
) -> None:
    config = tmp_path / "pipelines.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    with cdc_database(emulator) as source, PreparedPostgres(open_dir / "own_dags_warehouse") as server:
        source.run(
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Note nvarchar(max))", "INSERT dbo.Orders VALUES (1, N'a')"
        )
        source.enable("Orders")
        environment = command_environment(emulator, source.name, server, config) | {
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        }
        done = subprocess.run(
            [sys.executable, "-c", _RUNS.format(folder=str(EXAMPLES))],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        results = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("RESULT")]
        all_tasks = ("advance", "check", "follow_up", "load", "open_window", "report_gaps")
        assert results == [
            ["nightly_orders", "refresh_report=success", *(f"shop.{task}=success" for task in all_tasks)],
            # No capture job runs here, and all captured changes have been read.
            ["nightly_orders", *(f"{task}={state}" for task, state in _FAILED.items())],
            ["orders_of_the_hour", "summarize=success", "wait=success"],
        ], done.stdout + done.stderr
        said = done.stdout + done.stderr
        assert said.count("Floodmark: run failed: shop") == 1
        assert "Where: DAG nightly_orders, run manual__" in said
        with psycopg.connect(server.conninfo()) as session:
            assert session.execute('SELECT "Id", "Note" FROM shop.orders').fetchall() == [(1, "a")]
            assert session.execute("SELECT dag_id FROM floodmark.windows").fetchall() == [("nightly_orders",)]
