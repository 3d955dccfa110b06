"""Versions under concurrent commits: their order is that of the commits, and a snapshot sees a whole number of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from sql_client import SqlClient

Connect = Callable[..., SqlClient]
_COMMITS_EACH = 25


@pytest.fixture
def other(connect: Connect) -> SqlClient:
    return connect()


def _version(client: SqlClient) -> int:
    found: int = client.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    return found


def _changes(client: SqlClient, after: int) -> list[tuple[int, int]]:
    return client.rows(f"SELECT id, SYS_CHANGE_VERSION - {after} FROM CHANGETABLE(CHANGES t, {after}) AS c ORDER BY id")


def test_versions_are_in_the_order_of_commits_not_of_statements(tracked: SqlClient, other: SqlClient) -> None:
    base = _version(tracked)
    tracked.run("BEGIN TRAN; INSERT t (id) VALUES (1)")
    other.run("BEGIN TRAN; INSERT t (id) VALUES (2)")
    tracked.run("UPDATE t SET a = 1 WHERE id = 1")
    other.run("COMMIT")
    assert _version(tracked) == base + 1
    assert _changes(other, base) == [(2, 1)]
    tracked.run("COMMIT")
    assert _changes(other, base) == [(1, 2), (2, 1)]


def test_rolled_back_transaction_takes_no_version(tracked: SqlClient, other: SqlClient) -> None:
    base = _version(tracked)
    tracked.run("BEGIN TRAN; INSERT t (id) VALUES (1)")
    other.run("BEGIN TRAN; INSERT t (id) VALUES (2)")
    tracked.run("ROLLBACK")
    other.run("COMMIT")
    assert _version(tracked) == base + 1


def test_transaction_that_its_client_leaves_takes_no_version(tracked: SqlClient, connect: Connect) -> None:
    base = _version(tracked)
    leaver = connect()
    leaver.run("BEGIN TRAN; INSERT t (id) VALUES (1)")
    leaver.connection.close()
    tracked.run("INSERT t (id) VALUES (1)")
    assert _changes(tracked, base) == [(1, 1)]


def test_snapshot_keeps_version_changes_and_rows_of_one_moment(tracked: SqlClient, other: SqlClient) -> None:
    tracked.run("DROP TABLE IF EXISTS u; CREATE TABLE u (id int PRIMARY KEY); ALTER TABLE u ENABLE CHANGE_TRACKING")
    base = _version(tracked)
    tracked.run("BEGIN TRAN; INSERT t (id) VALUES (1); INSERT u VALUES (1); COMMIT")
    other.run("SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN")
    assert _version(other) == base + 1
    tracked.run("BEGIN TRAN; INSERT t (id) VALUES (2); UPDATE t SET a = 1 WHERE id = 1; INSERT u VALUES (2); COMMIT")
    assert _version(other) == base + 1
    assert _changes(other, base) == [(1, 1)]
    assert other.rows("SELECT id, a FROM t") == [(1, None)]
    assert other.rows(f"SELECT id FROM CHANGETABLE(CHANGES u, {base}) AS c") == [(1,)]
    other.run("COMMIT")
    assert _changes(other, base) == [(1, 2), (2, 2)]


def test_snapshot_writers_of_different_rows_do_not_conflict(tracked: SqlClient, other: SqlClient) -> None:
    base = _version(tracked)
    for writer, key in ((tracked, 1), (other, 2)):
        writer.run(f"SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN; INSERT t (id) VALUES ({key})")
    other.run("COMMIT")
    tracked.run("COMMIT")
    assert _changes(tracked, base) == [(1, 2), (2, 1)]


def test_serializable_writers_of_different_rows_do_not_fail(tracked: SqlClient, other: SqlClient) -> None:
    tracked.run("INSERT t (id) VALUES " + ", ".join(f"({key})" for key in range(1000)))
    base = _version(tracked)
    for round_ in range(3):
        for writer, key in ((tracked, 1 + round_), (other, 900 + round_)):
            writer.run(f"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN TRAN; UPDATE t SET a = 1 WHERE id = {key}")
        other.run("COMMIT")
        tracked.run("COMMIT")
    assert _version(tracked) == base + 6


def test_lock_timeout_is_not_for_the_version(tracked: SqlClient, other: SqlClient) -> None:
    base = _version(tracked)
    other.run("SET LOCK_TIMEOUT 0; BEGIN TRAN; INSERT t (id) VALUES (1)")
    tracked.run("BEGIN TRAN; INSERT t (id) VALUES (2)")
    other.run("COMMIT")
    tracked.run("COMMIT")
    assert _version(tracked) == base + 2


def _commit_many(client: SqlClient, first: int) -> None:
    for number in range(_COMMITS_EACH):
        client.run(f"BEGIN TRAN; INSERT t (id) VALUES ({first + 2 * number}), ({first + 2 * number + 1}); COMMIT")


def _windows(reader: SqlClient, base: int, is_over: Callable[[], bool]) -> Iterator[tuple[int, int, list[int]]]:
    """Windows that follow each other: after, to, and the keys that changed."""
    after = base
    while True:
        last = is_over()
        reader.run("BEGIN TRAN")
        to = _version(reader)
        keys = [key for (key,) in reader.rows(f"SELECT id FROM CHANGETABLE(CHANGES t, {after}) AS c")]
        reader.run("COMMIT")
        yield after, to, keys
        after = to
        if last:
            return


def test_windows_of_a_reader_lose_nothing_while_writers_commit(tracked: SqlClient, connect: Connect) -> None:
    base = _version(tracked)
    writers = [threading.Thread(target=_commit_many, args=(connect(), 1000 * i)) for i in range(1, 4)]
    reader = connect()
    reader.run("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
    for writer in writers:
        writer.start()
    seen: list[int] = []
    for after, to, keys in _windows(reader, base, lambda: not any(writer.is_alive() for writer in writers)):
        assert len(keys) == 2 * (to - after)
        seen += keys
    assert len(seen) == len(set(seen)) == 6 * _COMMITS_EACH
    assert _version(tracked) == base + 3 * _COMMITS_EACH


def test_snapshot_has_to_be_allowed(tracked: SqlClient) -> None:
    tracked.run("USE master; DROP DATABASE IF EXISTS not_allowed; CREATE DATABASE not_allowed; USE not_allowed")
    tracked.run("CREATE TABLE t (id int); SET TRANSACTION ISOLATION LEVEL SNAPSHOT; SELECT name FROM sys.databases")
    for statement in ("SELECT * FROM t", "INSERT t VALUES (1)", "DELETE not_allowed.dbo.t"):
        assert tracked.error(statement)[0] == 3952
    tracked.run("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
    assert tracked.rows("SELECT * FROM t") == []


def test_transaction_does_not_change_to_snapshot(tracked: SqlClient) -> None:
    tracked.run("BEGIN TRAN; INSERT t (id) VALUES (1); SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
    assert tracked.error("SELECT id FROM t")[0] == 3951
    tracked.run("COMMIT; BEGIN TRAN")
    assert tracked.rows("SELECT id FROM t") == [(1,)]
    tracked.run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET TRANSACTION ISOLATION LEVEL SNAPSHOT; COMMIT")
