"""A cluster in place of this machine, by the Spark connection alone: first load and windows under a workload, with
workers that see neither clone nor environment, killed while they read and after they staged. Source and warehouse end
equal, row by row."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from cdc_database import wait_until
from floodmark_laptop import shop
from hidden_folders import can_hide
from packed_environment import pack_environment
from spark_cluster import FRUGAL_JAVA, SparkCluster
from torture_command import RunningCommand
from torture_rig import CDC, TortureRig

pytestmark = pytest.mark.timeout(900)

_LIMIT_SECONDS = 300
_MERGE_WAITS = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'shop.orders'::regclass"


def connection(cluster: SparkCluster, **conf: str) -> dict[str, str]:
    """Return the Spark connection, as Airflow's environment variable."""
    java = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), FRUGAL_JAVA)
    extra = {"conf": {"spark.executor.memory": "512m", **java, **conf}}
    fields = {"conn_type": "spark", "host": cluster.master, "extra": extra}
    return {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(fields)}


def succeeds(command: RunningCommand) -> str:
    assert command.wait(2 * _LIMIT_SECONDS) == 0, command.output
    return command.output


def control(rig: TortureRig, statement: str) -> None:
    with rig.source.connect_pymssql(shop.DATABASE, autocommit=True) as at, at.cursor() as cursor:
        cursor.execute(statement)


def run_with_kill_while_reading(rig: TortureRig, cluster: SparkCluster) -> str:
    """The statements that read a table wait, so that a worker dies in the middle of one."""
    control(rig, "EXEC emulator.slow_statements @seconds = 3, @times = 0, @text = N'FROM [dbo].[Orders]'")
    command = rig.begin("run", "shop")
    # Each try reads the connections of all processes of the cluster, which takes from the processor what they need.
    wait_until(lambda: cluster.kill_reader(rig.source.port), _LIMIT_SECONDS, pause_seconds=0.3)
    control(rig, "EXEC emulator.clear_faults")
    return succeeds(command)


def run_with_kill_after_staging(rig: TortureRig, cluster: SparkCluster) -> str:
    """The merge waits for a lock of the target, so that a worker dies when all rows are staged."""
    with psycopg.connect(rig.warehouse.conninfo()) as holder:
        holder.execute("LOCK TABLE shop.orders IN SHARE MODE")
        command = rig.begin("run", "shop")
        with psycopg.connect(rig.warehouse.conninfo(), autocommit=True) as observer:
            wait_until(lambda: observer.execute(_MERGE_WAITS).fetchone() is not None, _LIMIT_SECONDS, pause_seconds=0.3)
        assert cluster.kill_executor()
        holder.rollback()
    return succeeds(command)


def packed(folder: Path) -> dict[str, str]:
    """Return the properties of Spark with which executors use an archive of the packages."""
    archive = pack_environment(folder)
    return {"spark.archives": f"{archive}#environment", "spark.pyspark.python": "./environment/bin/python"}


def test_cluster_that_loses_workers_loses_and_doubles_no_row(open_dir: Path) -> None:
    rig = TortureRig(open_dir / "rig", 1, with_spark=True)
    # Workers as on another machine, where the system allows to hide folders from a process.
    cluster = SparkCluster(open_dir / "cluster", is_elsewhere=can_hide())
    rig.environment = connection(cluster, **packed(open_dir))
    with rig.running(), cluster.running():
        assert f"on {cluster.master} is up" in run_with_kill_while_reading(rig, cluster)
        cluster.start_worker(2)
        run_with_kill_after_staging(rig, cluster)
        rig.end_workload()
        succeeds(rig.begin_without_spark("run", "shop"))
        verified = json.loads(succeeds(rig.begin("verify", "shop", "--json")))
        assert {each["source"] for each in verified if each["equal"]} == {f"dbo.{table}" for table in CDC.tables}
