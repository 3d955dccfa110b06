"""kill -9 of Airflow's processes, inside the steps of a first load, of windows and of backfills, under a workload: all
that Airflow tries again ends well by itself, and source and warehouse end equal, row by row. Then a gap
stops one table.

FLOODMARK_AIRFLOW_KILLS: how many more, of drawn victims at drawn moments. FLOODMARK_TORTURE_SEED: which.
FLOODMARK_TORTURE_WRITES: transactions of the workload in a second.
FLOODMARK_TORTURE_SPARK=1: with Spark and Great Expectations, as ``make torture`` does.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_rig import DAG_ID, STATES, AirflowRig, Gate
from airflow_torturer import AirflowTorturer
from forked_comparison import compare

KILLS = int(os.environ.get("FLOODMARK_AIRFLOW_KILLS", "0"))
SEED = int(os.environ.get("FLOODMARK_TORTURE_SEED", "20261122"))
WITH_SPARK = os.environ.get("FLOODMARK_TORTURE_SPARK") == "1"
SPOILT = (
    "DELETE FROM shop.order_lines",
    """UPDATE shop.orders SET "Status" = 'spoilt', __deleted = NOT __deleted""",
    """UPDATE shop.customers SET "Name" = 'spoilt'""",
)
STILL_SPOILT = """
SELECT 'order' FROM shop.orders WHERE "Status" = 'spoilt'
UNION ALL SELECT 'customer' FROM shop.customers WHERE "Name" = 'spoilt'
"""

pytestmark = pytest.mark.timeout(900 + KILLS * (150 if WITH_SPARK else 60))


def kill_in_first_load(rig: AirflowRig) -> None:
    """The machine, so to say: scheduler, task and load, when some chunks are staged and others are not."""
    rig.source("EXEC emulator.slow_statements @seconds = 0.5, @times = 0, @text = N'OrderLines', @database = N'Shop'")
    staged = "SELECT chunk_no FROM floodmark.load_chunks WHERE state = 'staged' AND source_name = 'OrderLines'"
    rig.wait(lambda: len(rig.warehouse(staged)) >= 2, "chunks to be staged")
    rig.kill("machine", "load")
    rig.source("EXEC emulator.clear_faults")
    rig.wait_for_success(*rig.runs())
    assert "chunks are left" in rig.logs("load")


def kill_in_every_step(rig: AirflowRig) -> int:
    """Each task's process once, inside the transaction that ends its step. Returns the window."""
    with rig.gate(*STATES) as gate:
        run = rig.trigger()
        for task in STATES:
            gate.wait_for(task)
            rig.kill("task", task)
            # The load does not outlive its task, or the next try would find it at work.
            rig.wait(lambda: not rig.loads_at_work(), "the load to end")
            gate.open(task)
    rig.wait_for_success(run)
    ((window,),) = rig.warehouse("SELECT max(window_id) FROM floodmark.windows WHERE state = 'advanced'")
    return int(window)


def kill_worker(rig: AirflowRig) -> None:
    """The process that watches over a task: Airflow gives up on the task, which goes on."""
    with rig.gate("load") as gate:
        rig.trigger()
        kill_until_next_try(rig, gate, "worker")


def kill_until_next_try(rig: AirflowRig, gate: Gate, victim: str) -> None:
    """Kill the victim; the gate holds the load of the first try until the next try is there as well."""
    gate.wait_for("load")
    run = rig.run_of("load")
    tries = rig.tries(run, "load")
    rig.kill(victim, "load")
    rig.wait_for_try(run, "load", tries + 1)
    gate.open("load")
    rig.wait_for_success(run)


def spoil(rig: AirflowRig, window: int) -> None:
    """Rows that the window brought, of the backfill's hours: they are gone, are back, or hold something else."""
    begin, end = (f"decode('{lsn}', 'hex')" for lsn in rig.past_lsns)
    for statement in SPOILT:
        assert rig.warehouse(
            f"{statement} WHERE __window_id = {window} AND __lsn > {begin} AND __lsn <= {end} RETURNING 1"
        )


def kill_in_backfill(rig: AirflowRig, victim: str, **options: object) -> None:
    """While one of its runs loads."""
    with rig.gate("load") as gate:
        rig.backfill(**options)
        kill_until_next_try(rig, gate, victim)
    runs = rig.backfill_runs()
    assert len(runs) == 2
    rig.wait_for_success(*runs)
    assert rig.warehouse(STILL_SPOILT) == []


def stop_one_table(rig: AirflowRig) -> None:
    """Cleanup passes its watermark: the others go on, runs fail for it, and a reload of it ends that."""
    watermarks = "SELECT source_name, watermark FROM floodmark.tables"
    before = dict(rig.warehouse(watermarks))
    for note in ("one", "two"):
        rig.source(f"UPDATE TOP (3) dbo.Customers SET Name = N'{note}'", "Shop")
        rig.source("UPDATE TOP (3) dbo.Products SET Price = 1", "Shop")
        rig.source("EXEC emulator.run_capture", "Shop")
    low = "DECLARE @low binary(10) = (SELECT MAX([__$start_lsn]) FROM cdc.dbo_Customers_CT)"
    rig.source(f"{low} EXEC sys.sp_cdc_cleanup_change_table N'dbo_Customers', @low", "Shop")
    run = rig.trigger()
    rig.wait_for_failure(run)
    states = rig.airflow.task_states(DAG_ID, run)
    assert (states["advance"], states["report_gaps"]) == ("success", "failed")
    assert {name for name, watermark in rig.warehouse(watermarks) if watermark == before[name]} == {"Customers"}
    assert [each.table for each in compare(rig.stack) if not each.equal] == ["dbo.Customers"]
    kinds = "kind IN ('run_failed', 'table_left_out')"
    alert = f"SELECT kind, source_name, what, means FROM floodmark.alerts WHERE ended_at IS NULL AND {kinds}"
    rig.wait(lambda: bool(rig.warehouse(alert)), "the alert")
    ((kind, table, what, means),) = rig.warehouse(alert)
    assert (kind, table) == ("table_left_out", "Customers")
    assert what.startswith("expired: changes after the watermark")
    assert "The other tables of the pipeline go on" in means
    rig.reload("dbo.Customers")
    rig.source("UPDATE TOP (1) dbo.Products SET Price = 2", "Shop")
    rig.source("EXEC emulator.run_capture", "Shop")
    rig.wait_for_success(rig.trigger())
    assert rig.warehouse(alert) == []


def test_airflow_killed_inside_every_step_ends_with_equal_tables(
    stack_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = AirflowRig(stack_dir, with_spark=WITH_SPARK, with_triggerer=bool(KILLS))
    monkeypatch.setenv("PATH", f"{rig.programs}{os.pathsep}{os.environ['PATH']}")
    with rig.running():
        kill_in_first_load(rig)
        rig.work_in_the_past()
        window = kill_in_every_step(rig)
        spoil(rig, window)
        kill_in_backfill(rig, "scheduler", max_active_runs=2)
        kill_worker(rig)
        if KILLS:
            # Airflow allows of no other backfill yet: it checks every half a minute whether one has ended.
            rig.wait(rig.may_backfill, "Airflow to end the backfill")
            kill_in_backfill(rig, "machine", run_backwards=True)
            AirflowTorturer(rig, SEED).torture(KILLS)
        rig.end_workload()
        rig.wait_for_success(rig.trigger())
        stop_one_table(rig)
        assert [(c.table, c.differences) for c in compare(rig.stack) if not c.equal] == []
        assert rig.warehouse("SELECT DISTINCT state FROM floodmark.windows") == [("advanced",)]
        assert rig.warehouse("SELECT * FROM test.moved_back") == []
