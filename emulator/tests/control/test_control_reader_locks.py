"""Readers that wait for locks: for writers of a chosen table, for its open DDL, and for the capture job."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, wait_until
from emulator_process import Emulator


@pytest.fixture
def reader(shop: CdcDatabase, controlled_emulator: Emulator) -> Iterator[CdcDatabase]:
    """Another session, which waits no longer than 100 ms for a lock; reads of dbo.t and its change table are locked."""
    shop.run(
        "INSERT dbo.t (id, v) VALUES (1, 'a')",
        "CREATE TABLE dbo.other (id int)",
        "EXEC emulator.run_capture",
        "EXEC emulator.lock_reads @table = N'dbo.t'",
        "EXEC emulator.lock_reads @table = N'[cdc].[dbo_t_CT]'",
    )
    with controlled_emulator.connect_pymssql(shop.name, autocommit=True) as connection:
        session = CdcDatabase(shop.name, connection)
        session.run("SET LOCK_TIMEOUT 100")
        yield session
        # Before the session that waits ends.
        shop.run("IF @@TRANCOUNT > 0 ROLLBACK")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT v FROM dbo.t WHERE id = 2",
        "SELECT v FROM dbo.t AS a WITH (INDEX = 1)",
        "WITH c AS (SELECT v FROM [dbo].[t]) SELECT v FROM c",
        "SELECT a.v FROM dbo.t AS a WITH (NOLOCK) JOIN dbo.t AS b ON b.id = a.id",
        "DECLARE @v varchar(20); SELECT @v = v FROM dbo.t",
        "EXEC sys.sp_executesql N'SELECT v FROM dbo.t'",
        "BEGIN TRAN; SELECT v FROM dbo.t",
    ],
)
def test_reader_waits_for_a_writer_of_the_table(shop: CdcDatabase, reader: CdcDatabase, statement: str) -> None:
    shop.run("BEGIN TRAN", "UPDATE dbo.t SET v = 'b'")
    assert reader.error_of(statement) == 1222
    shop.run("COMMIT")
    reader.run("IF @@TRANCOUNT > 0 ROLLBACK")
    assert reader.query("SELECT v FROM dbo.t") == [{"v": "b"}]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT v FROM dbo.t WITH (NOLOCK)",
        "SELECT v FROM dbo.t AS a WITH (INDEX = 1, READUNCOMMITTED) WHERE id = 1",
        "SELECT v FROM dbo.t (NOLOCK)",
        "SELECT id FROM dbo.other",
        "SELECT name FROM sys.tables",
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; SELECT v FROM dbo.t",
        "SET TRANSACTION ISOLATION LEVEL SNAPSHOT; SELECT v FROM dbo.t",
    ],
)
def test_reader_without_shared_locks_waits_for_no_writer(
    shop: CdcDatabase, reader: CdcDatabase, statement: str
) -> None:
    shop.run("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
    shop.run("BEGIN TRAN", "UPDATE dbo.t SET v = 'b'")
    reader.query(statement)
    assert shop.query("SELECT v FROM dbo.t") == [{"v": "b"}], "no one waits for oneself"


def test_reader_goes_on_when_the_writer_ends_and_sees_what_it_wrote(shop: CdcDatabase, reader: CdcDatabase) -> None:
    reader.run("SET LOCK_TIMEOUT -1")
    shop.run("BEGIN TRAN", "UPDATE dbo.t SET v = 'b'")
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.extend(reader.query("SELECT v FROM dbo.t")))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    shop.run("COMMIT")
    waiting.join(30)
    assert found == [{"v": "b"}]


def test_reader_holds_no_lock_that_a_writer_waits_for(shop: CdcDatabase, reader: CdcDatabase) -> None:
    reader.run("BEGIN TRAN")
    assert reader.query("SELECT v FROM dbo.t") == [{"v": "a"}]
    shop.run("SET LOCK_TIMEOUT 100", "UPDATE dbo.t SET v = 'b'")
    assert reader.query("SELECT v FROM dbo.t") == [{"v": "b"}]
    reader.run("COMMIT")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT name FROM sys.columns WHERE object_id = 5",
        "SELECT OBJECT_ID(N'dbo.t') AS id",
        "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES",
        "DECLARE @t TABLE (id int); INSERT INTO @t SELECT object_id FROM sys.tables",
        "SELECT v FROM dbo.t WITH (NOLOCK)",
    ],
)
def test_reader_of_the_catalog_waits_for_open_ddl(shop: CdcDatabase, reader: CdcDatabase, statement: str) -> None:
    shop.run("BEGIN TRAN", "ALTER TABLE dbo.t ADD later int")
    assert reader.error_of(statement) == 1222
    assert reader.query("SELECT id FROM dbo.other") == []
    shop.run("ROLLBACK")
    reader.query(statement if statement.startswith("SELECT") else "SELECT 1 AS one")


def test_reader_of_a_change_table_waits_for_the_capture_job(shop: CdcDatabase, reader: CdcDatabase) -> None:
    shop.run("EXEC emulator.slow_scan @seconds = 3600", "INSERT dbo.t (id) VALUES (2)")
    changes = "SELECT id FROM cdc.dbo_t_CT"
    newest = reader.scalar("sys.fn_cdc_get_max_lsn()")

    def waits() -> bool:
        try:
            return len(reader.query(changes)) != 1
        except Exception as error:  # noqa: BLE001 - whatever the driver makes of it
            return "1222" in str(error)

    wait_until(waits)
    assert reader.error_of(changes) == 1222
    assert reader.scalar("sys.fn_cdc_get_max_lsn()") == newest
    shop.run("EXEC emulator.slow_scan @seconds = 0", "EXEC emulator.run_capture")
    assert reader.query(changes) == [{"id": 1}, {"id": 2}]


def test_only_the_named_login_waits_and_until_the_fault_is_cleared(shop: CdcDatabase, reader: CdcDatabase) -> None:
    shop.run("EXEC emulator.clear_faults", "EXEC emulator.lock_reads @table = N't', @login = N'loader'")
    shop.run("BEGIN TRAN", "UPDATE dbo.t SET v = 'b'")
    assert reader.query("SELECT v FROM dbo.t") == [{"v": "a"}]
    shop.run("EXEC emulator.lock_reads @table = N't', @login = N'sa'")
    assert reader.error_of("SELECT v FROM dbo.t") == 1222
    assert {fault["fault"] for fault in shop.query("EXEC emulator.help_faults")} == {"locked reads"}
    shop.run("EXEC emulator.clear_faults")
    assert reader.query("SELECT v FROM dbo.t") == [{"v": "a"}]


def test_unknown_table_is_refused(shop: CdcDatabase) -> None:
    assert shop.error_of("EXEC emulator.lock_reads @table = N'dbo.unknown'") == 49998
    assert shop.error_of("EXEC emulator.lock_reads @table = NULL") == 49998
