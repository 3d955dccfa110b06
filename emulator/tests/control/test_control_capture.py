"""Capture and cleanup driven from outside, and a capture job that lags, fails or is slow."""

from __future__ import annotations

import threading
from datetime import datetime

import pytest

from cdc_database import CdcDatabase, wait_until
from emulator_process import Emulator, capture_jobs

STOP = "EXEC sys.sp_cdc_stop_job"
ACTIVITY = (
    "SELECT a.start_execution_date AS began, a.stop_execution_date AS ended FROM msdb.dbo.sysjobactivity a"
    " JOIN msdb.dbo.cdc_jobs j ON j.job_id = a.job_id WHERE j.job_type = 'capture' AND j.database_id = DB_ID()"
)


def captured(shop: CdcDatabase) -> list[int]:
    return [row["id"] for row in shop.change_table("dbo_t")]


def insert(shop: CdcDatabase, *ids: int) -> None:
    shop.run(*(f"INSERT dbo.t (id, v) VALUES ({number}, 'a')" for number in ids))


@pytest.mark.parametrize("before", ["EXEC emulator.delay_capture 0", STOP, "EXEC emulator.fail_capture"])
def test_run_capture_captures_all_that_is_committed_whatever_the_job_does(shop: CdcDatabase, before: str) -> None:
    shop.run("EXEC emulator.delay_capture 3600", before)
    insert(shop, 1, 2)
    shop.run("EXEC emulator.run_capture")
    assert captured(shop) == [1, 2]
    insert(shop, 3)
    shop.run(f"USE master; EXEC emulator.run_capture @database = N'{shop.name.upper()}'; USE [{shop.name}]")
    assert captured(shop) == [1, 2, 3]


def test_idle_row_comes_300_seconds_after_the_last_entry(shop: CdcDatabase) -> None:
    shop.run(STOP)
    insert(shop, 1)
    entries = "SELECT start_lsn, tran_id, tran_end_time AS ended FROM cdc.lsn_time_mapping ORDER BY start_lsn DESC"
    shop.run("EXEC emulator.run_capture", "EXEC emulator.advance_clock 290", "EXEC emulator.run_capture")
    before = shop.query(entries)
    shop.run("EXEC emulator.advance_clock 11", "EXEC emulator.run_capture")
    (idle, *rest) = shop.query(entries)
    assert rest == before
    assert idle["tran_id"] == b"\0"
    assert 300 < (idle["ended"] - before[0]["ended"]).total_seconds() < 360


def test_delayed_job_captures_when_its_time_has_come_by_the_clock(shop: CdcDatabase) -> None:
    shop.run("EXEC emulator.delay_capture @seconds = 600")
    insert(shop, 1)
    shop.run("EXEC emulator.advance_clock 300")
    insert(shop, 2)
    shop.run("EXEC emulator.advance_clock 301")
    wait_until(lambda: captured(shop) != [])
    assert captured(shop) == [1]
    shop.run("EXEC emulator.delay_capture 0")
    wait_until(lambda: captured(shop) == [1, 2])


def test_failed_job_is_down_as_the_agent_and_the_views_report_and_comes_back_when_cleared(shop: CdcDatabase) -> None:
    insert(shop, 1)
    wait_until(lambda: captured(shop) == [1])
    shop.run("EXEC emulator.fail_capture @message = N'The log is on fire.'")
    insert(shop, 2)
    wait_until(lambda: shop.query("SELECT 1 AS x FROM sys.dm_cdc_errors") != [])
    (error,) = shop.query("SELECT error_number, error_message FROM sys.dm_cdc_errors")
    assert error == {"error_number": 22859, "error_message": "The log is on fire."}
    (activity,) = shop.query(ACTIVITY)
    assert activity["ended"] >= activity["began"]
    assert shop.error_of(STOP) == 22022
    shop.run("EXEC sys.sp_cdc_start_job")
    wait_until(lambda: len(shop.query("SELECT 1 AS x FROM sys.dm_cdc_errors")) == 2)
    assert captured(shop) == [1]
    shop.run("EXEC emulator.clear_faults")
    wait_until(lambda: captured(shop) == [1, 2])
    assert shop.query(ACTIVITY)[0]["ended"] is None


def test_job_that_is_stopped_before_the_agent_started_it_has_ended(shop: CdcDatabase) -> None:
    shop.run(STOP)
    wait_until(lambda: shop.query(ACTIVITY)[0]["ended"] is not None)
    for _ in range(3):
        shop.run("BEGIN TRAN; EXEC sys.sp_cdc_start_job; EXEC sys.sp_cdc_stop_job; COMMIT")
        wait_until(lambda: shop.query(ACTIVITY)[0]["ended"] is not None, 10.0)


def test_job_that_is_stopped_while_it_waits_for_its_next_attempt_has_ended(
    shop: CdcDatabase, controlled_emulator: Emulator
) -> None:
    wait_until(lambda: capture_jobs(controlled_emulator) != [])
    for job in capture_jobs(controlled_emulator):
        job.kill()
    retries = "SELECT 1 AS x FROM msdb.dbo.sysjobhistory h JOIN msdb.dbo.cdc_jobs j ON j.job_id = h.job_id"
    wait_until(lambda: shop.query(f"{retries} WHERE j.database_id = DB_ID() AND h.run_status = 2") != [])
    shop.run(STOP)
    wait_until(lambda: shop.query(ACTIVITY)[0]["ended"] is not None, 10.0)


def test_slow_scan_shows_in_the_scan_sessions(shop: CdcDatabase) -> None:
    shop.run("EXEC emulator.slow_scan @seconds = 2")
    insert(shop, 1)
    wait_until(lambda: captured(shop) == [1])
    (session,) = shop.query(
        "SELECT TOP 1 duration, latency FROM sys.dm_cdc_log_scan_sessions WHERE tran_count > 0 ORDER BY session_id DESC"
    )
    assert session["duration"] >= 2
    assert session["latency"] >= 2


@pytest.mark.parametrize("who", ["job", "sp_cdc_scan", "run_capture"])
def test_deletes_have_null_in_a_column_that_is_not_null_on_demand(shop: CdcDatabase, who: str) -> None:
    shop.run(
        "CREATE TABLE dbo.b (id int NOT NULL, flag bit NOT NULL, n nvarchar(9) NOT NULL, other bit NOT NULL,"
        " PRIMARY KEY (id, flag))",
        "EXEC sys.sp_cdc_enable_table N'dbo', N'b', @role_name = NULL, @supports_net_changes = 1",
        "EXEC sys.sp_cdc_enable_table N'dbo', N'b', N'again', @role_name = NULL",
        *(() if who == "job" else (STOP,)),
    )
    scan = {"job": "SELECT 1 AS x", "sp_cdc_scan": "EXEC sys.sp_cdc_scan", "run_capture": "EXEC emulator.run_capture"}

    def rows(instance: str, count: int) -> list[tuple[object, ...]]:
        shop.run(scan[who])
        wait_until(lambda: len(shop.change_table(instance)) == count)
        changes = shop.change_table(instance)
        return [(c["__$operation"], c["id"], c["flag"], c["n"], c["other"]) for c in changes]

    shop.run("INSERT dbo.b VALUES (1, 1, 'a', 1), (2, 1, 'b', 0), (3, 0, 'c', 1)")
    shop.run("BEGIN TRAN; EXEC emulator.null_in_deletes N'dbo.b', N'FLAG'; ROLLBACK")
    shop.run("EXEC emulator.null_in_deletes @table = N'b', @column = N'n'")
    shop.run(
        "DELETE dbo.b WHERE id = 1", "UPDATE dbo.b SET n = 'd' WHERE id = 2", "UPDATE dbo.b SET flag = 1 WHERE id = 3"
    )
    expected: list[tuple[object, ...]] = [
        *[(2, 1, True, "a", True), (2, 2, True, "b", False), (2, 3, False, "c", True)],
        (1, 1, None, None, True),
        *[(3, 2, True, "b", False), (4, 2, True, "d", False)],
        *[(1, 3, None, None, True), (2, 3, True, "c", True)],
    ]
    assert rows("dbo_b", 8) == rows("again", 8) == expected
    flag, _n = shop.query("EXEC emulator.help_faults")
    assert (flag["fault"], flag["table_name"], flag["text"]) == ("null in deletes", "dbo.b", "FLAG")
    shop.run(f"EXEC emulator.clear_faults {flag['fault_id']}", "DELETE dbo.b WHERE id = 2")
    assert rows("dbo_b", 9)[8] == (1, 2, True, None, False)
    shop.run("EXEC emulator.reset", "DELETE dbo.b WHERE id = 3")
    assert rows("dbo_b", 10)[9] == (1, 3, True, "c", True)


def test_run_cleanup_removes_what_is_older_than_the_retention_by_the_clock(shop: CdcDatabase) -> None:
    shop.run(STOP, "EXEC sys.sp_cdc_drop_job N'cleanup'")  # which would run when the clock passes two in the morning
    insert(shop, 1)
    shop.run("EXEC emulator.advance_clock 10")
    insert(shop, 2)
    shop.run("EXEC emulator.advance_clock 259201", "EXEC emulator.run_cleanup")
    insert(shop, 3)
    shop.run("EXEC emulator.run_capture", "EXEC emulator.run_cleanup @retention = 4322")
    assert captured(shop) == [1, 2, 3]
    low = shop.scalar("sys.fn_cdc_get_min_lsn('dbo_t')")
    shop.run("EXEC emulator.run_cleanup")
    assert captured(shop) == [2, 3]  # the newest entry that is old enough is kept
    assert shop.scalar("sys.fn_cdc_get_min_lsn('dbo_t')") > low
    assert shop.scalar("(SELECT COUNT(*) FROM cdc.lsn_time_mapping)") <= 2


def test_cleanup_raises_the_low_end_before_it_removes_changes(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    """A reader that reads the low end again after its read misses nothing (docs/reference/sqlserver_cdc.md,
    "Windows")."""
    shop.run(STOP)
    insert(shop, 1)
    shop.run("EXEC emulator.advance_clock 10")
    insert(shop, 2)
    shop.run("EXEC emulator.run_capture")
    low = shop.scalar("sys.fn_cdc_get_min_lsn('dbo_t')")
    with (
        controlled_emulator.connect_pymssql(shop.name) as holder,
        controlled_emulator.connect_pymssql(shop.name, autocommit=True) as cleaner,
        holder.cursor() as held,
        cleaner.cursor() as cleaning,
    ):
        held.execute("UPDATE cdc.dbo_t_CT SET v = 'held' WHERE id = 1")
        thread = threading.Thread(target=cleaning.execute, args=("EXEC emulator.run_cleanup @retention = 0",))
        thread.start()
        wait_until(lambda: shop.scalar("sys.fn_cdc_get_min_lsn('dbo_t')") > low)
        assert captured(shop) == [1, 2]
        holder.rollback()
        thread.join(60)
        assert captured(shop) == [2]


def log_reuse(shop: CdcDatabase) -> tuple[int, str]:
    (row,) = shop.query("SELECT log_reuse_wait, log_reuse_wait_desc FROM sys.databases WHERE database_id = DB_ID()")
    return row["log_reuse_wait"], row["log_reuse_wait_desc"]


def test_log_waits_for_replication_while_changes_are_not_captured(shop: CdcDatabase) -> None:
    insert(shop, 1)
    shop.run("EXEC emulator.run_capture")
    assert log_reuse(shop) == (0, "NOTHING")
    shop.run(STOP, "CREATE TABLE dbo.untracked (id int)", "INSERT dbo.untracked VALUES (1)")
    wait_until(lambda: shop.query(ACTIVITY)[0]["ended"] is not None)
    assert log_reuse(shop) == (0, "NOTHING")
    shop.run("BEGIN TRAN", "INSERT dbo.untracked VALUES (2)")
    assert log_reuse(shop) == (0, "NOTHING")
    shop.run("ROLLBACK")
    insert(shop, 2)
    assert log_reuse(shop) == (6, "REPLICATION")
    shop.scan()
    assert log_reuse(shop) == (0, "NOTHING")
    insert(shop, 3)
    shop.run("EXEC emulator.fail_capture")
    assert log_reuse(shop) == (6, "REPLICATION")
    shop.run("EXEC emulator.clear_faults", "EXEC sys.sp_cdc_start_job")
    wait_until(lambda: captured(shop) == [1, 2, 3])
    assert log_reuse(shop) == (0, "NOTHING")


def test_log_waits_for_replication_while_a_delayed_job_holds_changes_back(shop: CdcDatabase) -> None:
    insert(shop, 1)
    wait_until(lambda: captured(shop) == [1])
    shop.run("EXEC emulator.delay_capture 3600")
    insert(shop, 2)
    wait_until(lambda: log_reuse(shop) == (6, "REPLICATION"))
    assert captured(shop) == [1]
    shop.run("EXEC emulator.advance_clock 3601")
    wait_until(lambda: log_reuse(shop) == (0, "NOTHING"))
    assert captured(shop) == [1, 2]


def test_full_log_waits_for_replication(shop: CdcDatabase) -> None:
    shop.run("EXEC emulator.fill_log")
    assert log_reuse(shop) == (6, "REPLICATION")
    shop.run("EXEC emulator.clear_faults")
    assert log_reuse(shop) == (0, "NOTHING")


def test_active_faults_are_listed_until_they_are_cleared(shop: CdcDatabase) -> None:
    shop.run("EXEC emulator.delay_capture 5", "EXEC emulator.delay_capture 7", "EXEC emulator.slow_scan 1")
    delay, slow = shop.query("EXEC emulator.help_faults")
    assert (delay["fault"], delay["database_name"], delay["value"]) == ("capture delay", shop.name, 7.0)
    assert abs((delay["since"] - datetime.now()).total_seconds()) < 60
    shop.run(f"EXEC emulator.clear_faults @fault_id = {delay['fault_id']}")
    assert shop.query("EXEC emulator.help_faults") == [slow]
    shop.run("EXEC emulator.reset")
    assert shop.query("EXEC emulator.help_faults") == []


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("delay_capture -1", 49998),
        ("delay_capture NULL", 49998),
        ("slow_scan 1e12", 49998),
        ("run_cleanup @retention = -1", 49998),
        ("run_cleanup @threshold = 0", 49998),
        ("run_capture @database = N'nowhere'", 49998),
        ("run_capture @database = N'master'", 22901),
        ("clear_faults 7777", 49998),
        ("null_in_deletes N'dbo.nowhere', N'id'", 49998),
        ("null_in_deletes N'dbo.t', N'nothing'", 49998),
        ("null_in_deletes N'dbo.t', N'v'", 49998),
    ],
)
def test_value_that_means_nothing_is_refused(shop: CdcDatabase, call: str, number: int) -> None:
    assert shop.error_of(f"EXEC emulator.{call}") == number
