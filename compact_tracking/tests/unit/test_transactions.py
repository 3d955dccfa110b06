"""Transactions: when they take the lock, how they end, and what killed ones leave behind."""

import os
import re
import sqlite3
from pathlib import Path

import pytest

from compact_files import ITEM, make_file, open_file, show_since, take_anchor
from compact_tracking import (
    ChangeTracking,
    InvalidOperationError,
    TrackingArgumentError,
    Transaction,
    TransactionLostError,
    UnsupportedError,
    access,
    numbers,
    processes,
)


@pytest.fixture
def file(path: Path) -> sqlite3.Connection:
    return make_file(path, ITEM, "INSERT INTO item (k, code, v) VALUES ('a', 1, 0), ('b', 2, 0)")


def test_only_the_first_write_takes_the_lock(path: Path, file: sqlite3.Connection) -> None:
    transaction = Transaction(open_file(path, timeout=0))
    assert transaction.execute("SELECT v FROM item WHERE k = 'a'").fetchall() == [(0,)]
    other = Transaction(open_file(path, timeout=0))
    other.execute("-- a comment\n UPDATE item SET v = 1")
    assert transaction.commit() is None
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        Transaction(open_file(path, timeout=0))
    assert other.commit() == 1


def test_a_transaction_that_read_an_older_state_cannot_write(path: Path, file: sqlite3.Connection) -> None:
    transaction = Transaction(open_file(path))
    transaction.execute("SELECT * FROM item").fetchall()
    file.execute("UPDATE item SET v = 1")
    with pytest.raises(TransactionLostError, match="begin it again, or write first"):
        transaction.execute("UPDATE item SET v = 2")
    with pytest.raises(InvalidOperationError, match="has ended"):
        transaction.commit()


@pytest.mark.parametrize("sql", ["BEGIN", "COMMIT", "end", "/* x */ ROLLBACK", "; commit"])
def test_sql_does_not_end_a_transaction(file: sqlite3.Connection, sql: str) -> None:
    with Transaction(file) as transaction:
        with pytest.raises(InvalidOperationError, match="ends with"):
            transaction.execute(sql)
        transaction.execute("SAVEPOINT s")
        transaction.executemany("UPDATE item SET v = ? WHERE k = ?", [(1, "a"), (2, "b")])
        transaction.execute("ROLLBACK TRANSACTION TO s")
        transaction.execute("WITH x AS (SELECT 1) UPDATE item SET v = 3 WHERE k = 'a'")
    assert file.execute("SELECT k, v FROM item").fetchall() == [("a", 3), ("b", 0)]


def test_an_error_in_the_block_undoes_it(file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    with pytest.raises(ZeroDivisionError), Transaction(file) as transaction:
        transaction.execute("DELETE FROM item")
        1 / 0  # noqa: B018 - raises
    assert show_since(file, after) == []


def test_an_ended_transaction_does_nothing_more(file: sqlite3.Connection) -> None:
    transaction = Transaction(file)
    transaction.rollback()
    for call in (transaction.commit, transaction.rollback, lambda: transaction.execute("SELECT 1")):
        with pytest.raises(InvalidOperationError, match="has ended"):
            call()


def test_a_connection_with_an_open_transaction_is_refused(path: Path) -> None:
    implicit = open_file(path, isolation_level="DEFERRED")
    implicit.execute("CREATE TABLE t (a PRIMARY KEY)")
    implicit.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(InvalidOperationError, match="isolation_level=None"):
        Transaction(implicit)
    implicit.commit()
    with Transaction(implicit) as transaction:
        transaction.execute("INSERT INTO t VALUES (2)")


def test_factories_of_the_connection_do_not_matter_or_are_refused(path: Path, file: sqlite3.Connection) -> None:
    file.row_factory = sqlite3.Row
    after = take_anchor(file)
    with Transaction(file) as transaction:
        assert transaction.execute("SELECT v FROM item").fetchone()["v"] == 0
        transaction.execute("DELETE FROM item WHERE k = 'a'")
    assert show_since(file, after) == ["D a"]
    file.text_factory = bytes
    with pytest.raises(TrackingArgumentError, match="text_factory"):
        take_anchor(file)


def test_a_transaction_without_a_log_waits_for_readers_and_commits_once(path: Path) -> None:
    file = make_file(path)
    file.execute("PRAGMA journal_mode = DELETE")
    reader = open_file(path)
    transaction = Transaction(open_file(path, timeout=0))
    transaction.execute("UPDATE item SET v = 1")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM item").fetchall()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        transaction.commit()
    reader.execute("COMMIT")
    assert transaction.commit() == 1
    assert ChangeTracking(file).get_last_committed_csn() == 1


def leave_open(path: Path, process: str, age: str = "-0 days") -> int:
    """Note a transaction of another process as open."""
    transaction = Transaction(open_file(path))
    open_file(path).execute(
        "UPDATE __ct_open SET process = ?, begun_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?)", (process, age)
    )
    return transaction.current_transaction_bsn


def test_a_killed_process_holds_nothing_back(path: Path, file: sqlite3.Connection) -> None:
    boot, namespace, _, _ = processes.identify_process().split(" ")
    leave_open(path, f"{boot} {namespace} 999999999 1")
    file.execute("UPDATE item SET v = 1")
    assert take_anchor(file).bsn == take_anchor(file).csn
    assert file.execute("SELECT count(*) FROM __ct_open").fetchone() == (0,)


@pytest.mark.parametrize(
    "process", ["", "1 2 3 4", "{boot} {own} x 4", "other-boot {own} 1 1", "{boot} pid:[1] 999999999 1"]
)
def test_a_process_elsewhere_is_given_up_by_age_only(path: Path, file: sqlite3.Connection, process: str) -> None:
    boot, own, *_ = processes.identify_process().split(" ")
    bsn = leave_open(path, process.format(boot=boot, own=own))
    assert take_anchor(file).bsn == bsn
    file.execute(f"UPDATE __ct_open SET begun_at = datetime('now', '-{numbers.OPEN_DAYS_LIMIT + 1} days')")
    assert take_anchor(file).bsn > bsn


def test_a_process_whose_status_is_hidden_is_asked_for_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    own = processes.identify_process()
    boot, namespace, *_ = own.split(" ")
    monkeypatch.setattr(processes, "identify_process", lambda pid=None: "" if pid else own)
    assert not processes.is_dead(f"{boot} {namespace} {os.getppid()} 1")
    assert processes.is_dead(f"{boot} {namespace} 999999999 1")


def test_a_living_transaction_that_was_given_up_has_to_begin_again(path: Path, file: sqlite3.Connection) -> None:
    transaction = Transaction(open_file(path))
    file.execute("UPDATE __ct_open SET begun_at = '1999-01-01'")
    take_anchor(file)
    with pytest.raises(TransactionLostError, match="taken for dead: begin it again"):
        transaction.execute("UPDATE item SET v = 1")
    assert file.execute("SELECT max(v) FROM item").fetchone() == (0,)


def test_an_old_sqlite_is_refused_with_both_versions() -> None:
    access.check_sqlite((3, 26, 0))
    message = "SQLite 3.25.3 is too old for compact_tracking, which needs 3.26.0 or later: use a Python"
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        access.check_sqlite((3, 25, 3))
    with pytest.raises(UnsupportedError, match=r"SQLite 3\.34\.1 cannot drop .* 3\.35\.0 or later"):
        access.check_drop_column((3, 34, 1))


def test_the_version_is_checked_before_anything_else(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(access, "MINIMUM_SQLITE", (99, 0, 0))
    for use in (ChangeTracking, Transaction):
        with pytest.raises(UnsupportedError, match=r"needs 99\.0\.0"):
            use(open_file(path))
