"""A pipeline at rest makes one run for each interval under Airflow, and a load that waits is started by such a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_database import cdc_database, wait_until
from command_line import command_environment
from emulator_process import Emulator
from forked_floodmark import begin
from prepared_folders import PreparedPostgres

pytestmark = pytest.mark.timeout(600)

DAGS = Path(__file__).resolve().parents[2] / "dags"
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: "*/5 * * * *"
    on_gap: repair
    tables: [{source: dbo.Orders, target: shop.orders}]
"""
_INTERVALS = 3
_RUNS = """
import json, sys
from collections import Counter
from datetime import datetime, timedelta, timezone
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from sqlalchemy import select, update

dags, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if not first:
    initdb()
    DagBundlesManager().sync_bundles_to_db()
bag = DagBag(dags)
sync_bag_to_db(bag, "dags-folder", None)
with create_session() as session:
    session.execute(update(DagModel).values(is_paused=False))
states = []
for number in range(first, first + count):
    at = datetime(2026, 1, 2, tzinfo=timezone.utc) + number * timedelta(minutes=5)
    run = bag.dags["cdc_shop"].test(logical_date=at, use_executor=False)
    states.append({ti.task_id: ti.state for ti in run.get_task_instances()} | {"": run.state})
with create_session() as session:
    _, by_assets = DagModel.dags_needing_dagruns(session)
    found = Counter(session.scalars(select(DagRun.dag_id)))
    clocks = sorted(session.scalars(select(DagModel.dag_id).where(DagModel.next_dagrun_create_after.is_not(None))))
print("RESULT " + json.dumps({"states": states, "runs": found, "started": sorted(by_assets), "clocks": clocks}))
"""
"""It makes runs of the pipeline one after the other, as the scheduler does, and prints what it would begin next."""


def test_pipeline_at_rest_makes_one_run_for_each_interval_until_a_load_waits(
    emulator: Emulator, open_dir: Path, tmp_path: Path
) -> None:
    config = tmp_path / "pipelines.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    with cdc_database(emulator) as source, PreparedPostgres(open_dir / "rest_warehouse") as server:
        enabling = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'Orders', @role_name = NULL"
        # The capture job runs: a source at rest is caught up.
        source.run("CREATE TABLE dbo.Orders (Id int PRIMARY KEY)", enabling, "INSERT INTO dbo.Orders VALUES (1)")
        wait_until(lambda: len(source.change_table("dbo_Orders")) == 1)
        environment = command_environment(emulator, source.name, server, config) | {
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        }
        for _ in range(2):
            first_load = begin(("run", "shop"), environment)
            assert first_load.wait(300) == 0, first_load.output

        def intervals(first: int, count: int) -> dict[str, object]:
            done = subprocess.run(
                [sys.executable, "-c", _RUNS, str(DAGS), str(first), str(count)],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            assert len(lines) == 1, done.stdout + done.stderr
            found: dict[str, object] = json.loads(lines[0].removeprefix("RESULT "))
            return found

        nothing_to_do = {
            **dict.fromkeys(("open_window", "load", "check", "advance", "report_gaps"), "skipped"),
            **dict.fromkeys(("follow_up", ""), "success"),
        }
        assert intervals(0, _INTERVALS) == {
            "states": [nothing_to_do] * _INTERVALS,
            "runs": {"cdc_shop": _INTERVALS},
            "started": [],
            "clocks": ["cdc_shop"],
        }
        source.run(
            "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'Orders', "
            "@capture_instance = N'dbo_Orders'",
            enabling,
            "INSERT INTO dbo.Orders VALUES (2)",
        )
        wait_until(lambda: len(source.change_table("dbo_Orders")) == 1)
        found = intervals(_INTERVALS, 1)
        assert found["started"] == ["cdc_load_shop"], found
