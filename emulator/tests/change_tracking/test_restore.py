"""A database goes back to its backup: rows, versions and what is known of changes; versions are used again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emulator_process import Emulator
from sql_client import SqlClient


@pytest.fixture
def client(emulator: Emulator) -> Iterator[SqlClient]:
    connection = emulator.connect_pymssql("master", autocommit=True)
    client = SqlClient(connection)
    client.run("DROP DATABASE IF EXISTS restored; CREATE DATABASE restored")
    client.run("USE restored; ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
    client.run(
        "CREATE TABLE t (id int IDENTITY PRIMARY KEY, a int, twice AS a * 2); ALTER TABLE t ENABLE CHANGE_TRACKING"
    )
    client.run("CREATE TABLE untracked (id int PRIMARY KEY REFERENCES t)")
    yield client
    connection.close()


def _state(client: SqlClient) -> tuple[int, list[tuple[int, ...]], list[tuple[int, ...]]]:
    version: int = client.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    rows = client.rows("SELECT id, a, twice FROM t ORDER BY id")
    return version, rows, client.rows("SELECT id, SYS_CHANGE_VERSION FROM CHANGETABLE(CHANGES t, 0) AS c ORDER BY id")


def test_restore_brings_back_rows_and_versions(client: SqlClient) -> None:
    client.run("INSERT t (a) VALUES (1); INSERT t (a) VALUES (2); INSERT untracked VALUES (1)")
    before = _state(client)
    assert before[0] == 2
    times = client.rows("SELECT commit_ts, commit_time FROM sys.dm_tran_commit_table ORDER BY 1")
    client.run("EXEC emulator.take_backup")
    client.run(
        "DELETE untracked; DELETE t WHERE id = 1; UPDATE t SET a = 5; TRUNCATE TABLE untracked; INSERT t (a) VALUES (3)"
    )
    assert _state(client)[0] == 5
    client.run("EXEC emulator.restore_backup")
    assert _state(client) == before
    assert client.rows("SELECT id FROM untracked") == [(1,)]
    assert client.rows("SELECT commit_ts, commit_time FROM sys.dm_tran_commit_table ORDER BY 1") == times
    client.run("UPDATE t SET a = 9 WHERE id = 2")
    assert client.rows("SELECT id, SYS_CHANGE_VERSION FROM CHANGETABLE(CHANGES t, 2) AS c") == [(2, 3)]


def test_truncate_since_the_backup_is_undone(client: SqlClient) -> None:
    client.run("INSERT t (a) VALUES (1); DROP TABLE untracked")
    client.run("EXEC emulator.take_backup")
    begun = "SELECT begin_version, min_valid_version FROM sys.change_tracking_tables"
    client.run("TRUNCATE TABLE t")
    assert client.rows(begun) == [(1, 1)]
    client.run("EXEC emulator.restore_backup")
    assert client.rows(begun) == [(0, 0)]


def test_restore_is_refused_where_it_cannot_be_true(client: SqlClient) -> None:
    assert client.error("EXEC emulator.restore_backup")[0] == 49998
    client.run("EXEC emulator.take_backup; ALTER TABLE t ADD more int")
    assert client.error("EXEC emulator.restore_backup")[0] == 49998
    client.run("EXEC emulator.take_backup")
    assert client.error("BEGIN TRAN; EXEC emulator.restore_backup")[0] == 49998
    client.run("ROLLBACK; ALTER TABLE t DISABLE CHANGE_TRACKING; ALTER TABLE t ENABLE CHANGE_TRACKING")
    assert client.error("EXEC emulator.restore_backup")[0] == 49998
