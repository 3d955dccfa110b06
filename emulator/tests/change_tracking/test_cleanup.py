"""Cleanup: what is older than the retention goes, by itself or on demand, and the oldest valid version rises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pymssql
import pytest

from cdc_database import wait_until
from emulator_process import Emulator, running_emulator
from server_folders import server_folder
from sql_client import SqlClient

_DAY = 86400


@pytest.fixture(scope="module")
def own_emulator() -> Iterator[Emulator]:
    """An emulator whose clock these tests move."""
    with server_folder("tracking-cleanup-") as folder, running_emulator(Path(folder) / "data") as running:
        yield running


@pytest.fixture
def client(own_emulator: Emulator) -> Iterator[SqlClient]:
    connection = own_emulator.connect_pymssql("master", autocommit=True)
    client = SqlClient(connection)
    client.run("EXEC emulator.reset_clock; DROP DATABASE IF EXISTS cleaned; CREATE DATABASE cleaned")
    client.run("USE cleaned")
    client.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 2 DAYS, AUTO_CLEANUP = OFF)")
    client.run("CREATE TABLE t (id int PRIMARY KEY, a int); ALTER TABLE t ENABLE CHANGE_TRACKING")
    client.run("CREATE TABLE quiet (id int PRIMARY KEY); ALTER TABLE quiet ENABLE CHANGE_TRACKING")
    yield client
    connection.close()


def _versions(client: SqlClient, table: str) -> tuple[int, int, int]:
    (row,) = client.rows(
        "SELECT begin_version, cleanup_version, min_valid_version FROM sys.change_tracking_tables"
        f" WHERE object_id = OBJECT_ID('{table}')"
    )
    return row


def _advance(client: SqlClient, days: float) -> None:
    client.run(f"EXEC emulator.advance_clock {days * _DAY}")


def _change(client: SqlClient) -> None:
    """Versions 1 and 2 three days ago, version 3 now."""
    client.run("INSERT t VALUES (1, 1), (2, 2); UPDATE t SET a = 5 WHERE id = 1")
    _advance(client, 3)
    client.run("INSERT t VALUES (3, 3)")


def test_on_demand_cleanup_takes_what_has_expired(client: SqlClient) -> None:
    _change(client)
    client.run("EXEC sys.sp_flush_CT_internal_table_on_demand 't'")
    assert _versions(client, "t") == (0, 2, 2)
    assert _versions(client, "quiet") == (0, 0, 0)
    assert client.rows("SELECT id FROM CHANGETABLE(CHANGES t, 0) AS c") == [(3,)]
    assert client.rows("SELECT commit_ts FROM sys.dm_tran_commit_table ORDER BY 1") == [(1,), (2,), (3,)]
    client.run("EXEC sys.sp_flush_CT_internal_table_on_demand")
    assert _versions(client, "quiet") == (0, 2, 2)
    client.run("EXEC sys.sp_flush_commit_table_on_demand 1")
    assert client.rows("SELECT commit_ts FROM sys.dm_tran_commit_table ORDER BY 1") == [(2,), (3,)]
    client.run("EXEC sys.sp_flush_commit_table_on_demand")
    assert client.rows("SELECT commit_ts FROM sys.dm_tran_commit_table ORDER BY 1") == [(3,)]
    assert client.rows("SELECT SYS_CHANGE_VERSION FROM CHANGETABLE(VERSION t, (id), (1)) AS v") == [(None,)]
    assert client.rows("SELECT table_name, rows_cleaned_up, cleanup_version FROM dbo.MSchange_tracking_history") == [
        ("t", 3, 2)
    ]


def test_version_that_is_current_stays_valid_however_quiet_it_is(client: SqlClient) -> None:
    client.run("INSERT t VALUES (1, 1)")
    _advance(client, 9)
    client.run("EXEC sys.sp_flush_CT_internal_table_on_demand; EXEC sys.sp_flush_commit_table_on_demand")
    assert client.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()") == 1
    assert client.value("SELECT CHANGE_TRACKING_MIN_VALID_VERSION(OBJECT_ID('quiet'))") == 1
    client.run("INSERT t VALUES (2, 2)")
    assert client.rows("SELECT id, SYS_CHANGE_VERSION FROM CHANGETABLE(CHANGES t, 1) AS c") == [(2, 2)]


def test_cleanup_runs_by_itself_where_it_is_on(client: SqlClient) -> None:
    _change(client)
    _advance(client, 0.1)
    client.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING (AUTO_CLEANUP = ON)")
    _advance(client, 0.1)
    wait_until(lambda: _versions(client, "t") == _versions(client, "quiet") == (0, 2, 2), 20)
    wait_until(lambda: client.value("SELECT COUNT(*) FROM sys.dm_tran_commit_table") == 1, 20)


def test_snapshot_reads_on_what_was_cleaned_up_since(client: SqlClient, own_emulator: Emulator) -> None:
    client.run("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
    _change(client)
    with own_emulator.connect_pymssql("cleaned", autocommit=True) as connection:
        reader = SqlClient(connection)
        reader.run("SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN; SELECT COUNT(*) FROM t")
        client.run("EXEC sys.sp_flush_CT_internal_table_on_demand; EXEC sys.sp_flush_commit_table_on_demand")
        assert reader.value("SELECT CHANGE_TRACKING_MIN_VALID_VERSION(OBJECT_ID('t'))") == 0
        assert reader.rows("SELECT id FROM CHANGETABLE(CHANGES t, 0) AS c ORDER BY id") == [(1,), (2,), (3,)]
        reader.run("COMMIT")
        assert reader.value("SELECT CHANGE_TRACKING_MIN_VALID_VERSION(OBJECT_ID('t'))") == 2


def test_cleanup_is_for_owners_and_tracked_tables(client: SqlClient, own_emulator: Emulator) -> None:
    assert client.error("EXEC sys.sp_flush_CT_internal_table_on_demand 'nosuch'")[0] == 22105
    client.run("IF SUSER_ID('cleaner') IS NULL CREATE LOGIN cleaner WITH PASSWORD = 'Cleaner-of-changes-1'")
    client.run("CREATE USER cleaner FOR LOGIN cleaner; GRANT SELECT ON t TO cleaner")
    with pymssql.connect(
        server=own_emulator.host,
        port=str(own_emulator.port),
        user="cleaner",
        password="Cleaner-of-changes-1",
        database="cleaned",
        autocommit=True,
    ) as connection:
        cleaner = SqlClient(connection)
        for procedure in ("sp_flush_CT_internal_table_on_demand", "sp_flush_commit_table_on_demand"):
            assert cleaner.error(f"EXEC sys.{procedure}")[0] == 15247
        assert cleaner.error("SELECT * FROM sys.dm_tran_commit_table")[0] == 262
        client.run("GRANT VIEW DATABASE STATE TO cleaner")
        assert cleaner.rows("SELECT * FROM sys.dm_tran_commit_table") == []
