"""A source whose readers wait for writers: a lock that lasts ends in "try again", and one that ends in time in rows."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDoneError

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import CdcDatabase, cdc_database, wait_until
from emulator_process import Emulator
from floodmark.core.errors import SourceUnavailableError
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SourceSession


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as database:
        database.run("CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Amount int)")
        database.enable("Orders")
        database.run("INSERT INTO dbo.Orders VALUES (1, 1), (2, 2)")
        database.scan()
        database.run(
            f"EXEC emulator.lock_reads @table = N'[dbo].[Orders]', @database = N'{database.name}'",
            f"EXEC emulator.lock_reads @table = N'[cdc].[dbo_Orders_CT]', @database = N'{database.name}'",
        )
        yield database
        database.run("EXEC emulator.clear_faults")


@pytest.fixture
def writer(emulator: Emulator, source: CdcDatabase) -> Iterator[CdcDatabase]:
    """Another session, whose transaction may stay open."""
    with emulator.connect_pymssql(source.name, autocommit=True) as connection:
        yield CdcDatabase(source.name, connection)


@pytest.fixture
def rig(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection) -> SwitchRig:
    return SwitchRig(emulator, source, database)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers give up after a second, and not only after a minute."""
    limit = SourceSession.limit_lock_waits
    monkeypatch.setattr(SourceSession, "limit_lock_waits", lambda session, seconds=1: limit(session, min(seconds, 1)))


def fails_with_a_lock_timeout(rig: SwitchRig) -> str:
    with pytest.raises(SourceUnavailableError, match=r"error 1222: .*Lock request time out") as caught:
        rig.run()
    assert caught.value.retryable
    return str(caught.value)


@pytest.mark.usefixtures("impatient")
def test_first_load_of_a_table_that_is_locked_is_tried_again(rig: SwitchRig, writer: CdcDatabase) -> None:
    writer.run("BEGIN TRAN", "UPDATE dbo.Orders SET Amount = 9")
    for _ in range(2):
        message = fails_with_a_lock_timeout(rig)
        assert message.startswith("dbo.Orders: ")
    writer.run("COMMIT")
    rig.database.scan()
    rig.run()
    rig.run()
    assert rig.differing() == []
    assert rig.rows("SELECT count(*) FROM floodmark.windows WHERE state <> 'advanced'") == [(0,)]


def test_first_load_waits_for_a_writer_that_ends_in_time(rig: SwitchRig, writer: CdcDatabase) -> None:
    writer.run("BEGIN TRAN", "UPDATE dbo.Orders SET Amount = 9")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(rig.run)
        try:
            with pytest.raises(NotDoneError):
                running.result(2)
        finally:
            writer.run("COMMIT")
        running.result(60)
    assert rig.rows('SELECT DISTINCT "Amount" FROM shop.orders') == [(9,)]


@pytest.mark.usefixtures("impatient")
def test_changes_that_the_capture_job_keeps_locked_are_tried_again(rig: SwitchRig) -> None:
    rig.run()
    rig.change("INSERT INTO dbo.Orders VALUES (3, 3)")
    name = rig.database.name
    rig.database.run(f"EXEC emulator.slow_scan @seconds = 3600, @database = N'{name}'", "EXEC sys.sp_cdc_start_job")
    rig.database.run("SET LOCK_TIMEOUT 100", "INSERT INTO dbo.Orders VALUES (4, 4)")
    wait_until(lambda: is_locked(rig.database))
    held = rig.database.scalar("sys.fn_cdc_get_max_lsn()")
    message = fails_with_a_lock_timeout(rig)
    assert "dbo.Orders" in message
    assert rig.database.scalar("sys.fn_cdc_get_max_lsn()") == held, "the scan was open all the time"
    rig.database.run(f"EXEC emulator.slow_scan @seconds = 0, @database = N'{name}'", "EXEC emulator.run_capture")
    rig.run()
    rig.run()
    assert rig.differing() == []


def is_locked(database: CdcDatabase) -> bool:
    try:
        database.query("SELECT COUNT(*) AS n FROM [cdc].[dbo_Orders_CT]")
    except Exception as error:
        if "1222" not in str(error):
            raise
        return True
    return False


def test_open_ddl_on_a_table_is_neither_a_drift_nor_a_missing_table(rig: SwitchRig, writer: CdcDatabase) -> None:
    rig.run()
    before = rig.rows("SELECT * FROM floodmark.verdicts")
    rig.change("INSERT INTO dbo.Orders VALUES (3, 3)")
    writer.run("BEGIN TRAN", "ALTER TABLE dbo.Orders ADD Note int")
    fails_with_a_lock_timeout(rig)
    assert rig.rows("SELECT event_id FROM floodmark.drift_events") == []
    assert rig.rows("SELECT * FROM floodmark.verdicts") == before
    assert rig.rows("SELECT count(*) FROM floodmark.windows WHERE state <> 'advanced'") == [(0,)]
    writer.run("COMMIT")
    rig.database.scan()
    rig.run()
    assert rig.differing() == []
    assert rig.rows("SELECT count(*) FROM floodmark.drift_events") == [(1,)]


def test_uncommitted_rows_of_others_do_not_hold_up_a_snapshot(rig: SwitchRig, writer: CdcDatabase) -> None:
    writer.run("BEGIN TRAN", "INSERT INTO dbo.Orders VALUES (3, 3)")
    (orders,) = SqlServerSource(rig.at).read_snapshot([ORDERS]).tables
    assert orders.last_change is not None
