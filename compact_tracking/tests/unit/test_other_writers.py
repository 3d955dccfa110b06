"""Programs that write to a tracked table on plain connections of SQLite."""

import sqlite3
from pathlib import Path
from uuid import UUID

import pytest

from compact_files import ITEM, apply, list_changes, make_file, open_file, read_rows, show, show_since, take_anchor
from compact_tracking import ChangeTracking, InvalidOperationError, Transaction

ROWS = "INSERT INTO item (k, code, v) VALUES ('a', 1, 0), ('b', 2, 0), ('c', 3, 0)"


@pytest.fixture(params=["", "PRAGMA recursive_triggers = ON", "PRAGMA trusted_schema = OFF"])
def file(tmp_path: Path, request: pytest.FixtureRequest) -> sqlite3.Connection:
    connection = make_file(tmp_path / "device.db", ITEM, ROWS)
    connection.execute(request.param)
    return connection


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO item (k) VALUES ('d'), ('e')", ["I d", "I e"]),
        ("UPDATE item SET v = v", ["U a", "U b", "U c"]),
        ("UPDATE item SET v = 1 WHERE k = 'none'", []),
        ("DELETE FROM item", ["D a", "D b", "D c"]),
        ("REPLACE INTO item (k, code) VALUES ('a', 1)", ["U a"]),
        ("REPLACE INTO item (k, code) VALUES ('a', 9)", ["U a"]),
        ("REPLACE INTO item (k, code) VALUES ('d', 2)", ["D b", "I d"]),
        ("REPLACE INTO item (k, code) VALUES ('a', 2)", ["D b", "U a"]),
        ("REPLACE INTO item (k, code) VALUES ('d', 1), ('e', 1), ('b', 1)", ["D a", "U b"]),
        ("INSERT OR IGNORE INTO item (k, code) VALUES ('a', 7), ('d', 2), ('e', 8)", ["I e"]),
        ("INSERT INTO item (k, code) VALUES ('a', 7) ON CONFLICT (k) DO UPDATE SET v = 5", ["U a"]),
        ("INSERT INTO item (k, code) VALUES ('d', 2) ON CONFLICT (code) DO UPDATE SET v = 5", ["U b"]),
        ("INSERT INTO item (k, code) VALUES ('d', 2) ON CONFLICT (code) DO UPDATE SET k = 'e'", ["D b", "I e"]),
        ("INSERT INTO item (k, code) VALUES ('a', 7) ON CONFLICT DO NOTHING", []),
        ("UPDATE item SET k = 'd' WHERE k = 'a'", ["D a", "I d"]),
        ("UPDATE item SET k = k || '1'", ["D a", "D b", "D c", "I a1", "I b1", "I c1"]),
        ("UPDATE OR REPLACE item SET k = 'b' WHERE k = 'a'", ["D a", "U b"]),
        ("UPDATE OR REPLACE item SET code = 2 WHERE k = 'a'", ["D b", "U a"]),
        ("UPDATE OR REPLACE item SET k = 'b', code = 3 WHERE k = 'a'", ["D a", "D c", "U b"]),
        ("UPDATE OR REPLACE item SET code = 5", ["D a", "D b", "U c"]),
        ("UPDATE OR IGNORE item SET code = 2 WHERE k = 'a'", []),
    ],
)
def test_a_statement_gives_the_changes_that_it_made(
    file: sqlite3.Connection, statement: str, expected: list[str]
) -> None:
    before, after = read_rows(file, "item"), take_anchor(file)
    file.execute(statement)
    until, changes = list_changes(file, after)
    assert show(changes) == expected
    assert apply(before, changes) == read_rows(file, "item")
    assert show_since(file, until) == []


def test_a_conflict_of_an_earlier_statement_leaves_nothing_behind(file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    file.execute("INSERT OR IGNORE INTO item (k, code) VALUES ('d', 2)")
    with pytest.raises(sqlite3.IntegrityError):
        file.execute("INSERT OR FAIL INTO item (k, code) VALUES ('e', 3)")
    file.execute("UPDATE item SET v = 1 WHERE k = 'a'")
    file.execute("DELETE FROM item WHERE k = 'b'")
    file.execute("INSERT INTO item (k, code) VALUES ('b', 7)")
    assert show_since(file, after) == ["U a", "U b"]
    assert file.execute("SELECT count(*) FROM __sysOCSDeletedRows").fetchone() == (1,)


def test_statements_that_are_ignored_leave_one_note_at_most(file: sqlite3.Connection) -> None:
    for number in range(20):
        file.execute("INSERT OR IGNORE INTO item (k, code) VALUES (?, ?)", (f"n{number}", 1 + number % 3))
    assert file.execute("SELECT count(*) FROM __ct_replaced").fetchone() == (1,)


def test_a_savepoint_that_is_undone_leaves_no_change(file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    for statement in (
        "BEGIN",
        "SAVEPOINT s",
        "DELETE FROM item",
        "ROLLBACK TO s",
        "UPDATE item SET v = 2 WHERE k = 'a'",
    ):
        file.execute(statement)
    file.execute("COMMIT")
    assert show_since(file, after) == ["U a"]


def test_a_rolled_back_transaction_takes_no_number(file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    file.execute("BEGIN")
    file.execute("DELETE FROM item")
    file.execute("ROLLBACK")
    assert take_anchor(file) == after


def test_writes_after_an_anchor_belong_to_the_next_window(file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    file.execute("UPDATE item SET v = 1 WHERE k = 'a'")
    until, changes = list_changes(file, after)
    file.execute("UPDATE item SET v = 1 WHERE k = 'b'")
    assert show(changes) == ["U a"]
    assert show_since(file, until) == ["U b"]


def test_writes_around_a_transaction_keep_their_windows(file: sqlite3.Connection, tmp_path: Path) -> None:
    after = take_anchor(file)
    transaction = Transaction(open_file(tmp_path / "device.db"))
    file.execute("UPDATE item SET v = 1 WHERE k = 'a'")
    middle, changes = list_changes(file, after)
    transaction.execute("UPDATE item SET v = 1 WHERE k = 'b'")
    transaction.commit()
    file.execute("UPDATE item SET v = 1 WHERE k = 'c'")
    assert show(changes) == ["U a"]
    assert show_since(file, middle) == ["U b", "U c"]


def test_numbers_rise_in_the_order_of_commits(file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    file.execute("UPDATE item SET v = 1 WHERE k = 'a'")
    with Transaction(file) as transaction:
        transaction.execute("UPDATE item SET v = 1 WHERE k = 'b'")
    file.execute("UPDATE item SET v = 1 WHERE k = 'c'")
    _, changes = list_changes(file, after)
    assert {change.key[0]: change.csn for change in changes} == {"a": 1, "b": 2, "c": 3}


def test_a_program_that_writes_back_the_columns_it_read_is_tracked(file: sqlite3.Connection) -> None:
    file.execute("UPDATE item SET v = 1")
    read = file.execute("SELECT v, __sysInsertTxBsn, __sysChangeTxBsn FROM item WHERE k = 'a'").fetchone()
    file.execute("UPDATE item SET v = 2 WHERE k = 'a'")
    after = take_anchor(file)
    write = "UPDATE item SET v = ?, __sysInsertTxBsn = ?, __sysChangeTxBsn = ? WHERE k = 'a'"
    file.execute(write, read)
    assert show_since(file, after) == ["U a"]
    after = take_anchor(file)
    file.execute(write, (3, None, None))
    assert show_since(file, after) == ["U a"]


def test_cascades_of_foreign_keys_are_tracked(file: sqlite3.Connection) -> None:
    file.execute("PRAGMA foreign_keys = ON")
    file.execute(
        "CREATE TABLE part (id INTEGER PRIMARY KEY, item TEXT REFERENCES item (k) ON DELETE CASCADE ON UPDATE CASCADE)"
    )
    ChangeTracking(file).enable_tracking("part")
    file.execute("INSERT INTO part (id, item) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    after = take_anchor(file)
    file.execute("DELETE FROM item WHERE k = 'a'")
    file.execute("UPDATE item SET k = 'd' WHERE k = 'b'")
    assert show_since(file, after) == ["D a", "D b", "I d"]
    assert show_since(file, after, "part") == ["D 1", "U 2"]


def test_triggers_of_the_user_that_write_to_a_tracked_table_are_tracked(file: sqlite3.Connection) -> None:
    file.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, k TEXT)")
    file.execute("CREATE TRIGGER logs AFTER INSERT ON item BEGIN INSERT INTO log (k) VALUES (NEW.k); END")
    ChangeTracking(file).enable_tracking("log")
    after = take_anchor(file)
    file.execute("REPLACE INTO item (k, code) VALUES ('d', 2)")
    assert (show_since(file, after), show_since(file, after, "log")) == (["D b", "I d"], ["I 1"])


def test_an_added_column_is_tracked(file: sqlite3.Connection) -> None:
    file.execute("ALTER TABLE item ADD COLUMN w TEXT")
    after = take_anchor(file)
    file.execute("UPDATE item SET w = 'x' WHERE k = 'b'")
    _, changes = list_changes(file, after)
    assert [change.row for change in changes] == [("b", 2, 0, "x")]


def test_a_null_in_the_key_is_refused(file: sqlite3.Connection) -> None:
    file.execute("CREATE TABLE loose (k TEXT PRIMARY KEY, v)")
    ChangeTracking(file).enable_tracking("loose")
    with pytest.raises(sqlite3.IntegrityError, match="the key of loose must not be NULL"):
        file.execute("INSERT INTO loose (v) VALUES (1)")


def test_a_transaction_that_was_committed_on_its_connection_is_numbered(
    tmp_path: Path, file: sqlite3.Connection
) -> None:
    after = take_anchor(file)
    transaction = Transaction(open_file(tmp_path / "device.db"))
    transaction.execute("UPDATE item SET v = 1 WHERE k = 'a'")
    transaction.connection.commit()
    file.execute("UPDATE item SET v = 1 WHERE k = 'b'")
    with pytest.raises(InvalidOperationError, match="was ended on its connection"):
        transaction.commit()
    until, changes = list_changes(file, after)
    assert show(changes) == ["U a", "U b"]
    file.execute("UPDATE item SET v = 1 WHERE k = 'c'")
    assert show_since(file, until) == ["U c"]


def test_the_context_reaches_rows_and_tombstones_of_its_transaction_only(file: sqlite3.Connection) -> None:
    device, other = UUID(int=7), UUID(int=8)
    after = take_anchor(file)
    with Transaction(file, device) as transaction:
        transaction.execute("UPDATE item SET v = 1 WHERE k = 'a'")
        transaction.tracking_context = other
        transaction.execute("DELETE FROM item WHERE k = 'b'")
        assert transaction.tracking_context == other
    file.execute("UPDATE item SET v = 1 WHERE k = 'c'")
    _, changes = list_changes(file, after)
    assert {change.key[0]: change.context for change in changes} == {"a": device, "b": other, "c": None}
    assert file.execute("SELECT __sysTrackingContext FROM __sysOCSDeletedRows").fetchall() == [(str(other),)]
    assert file.execute("SELECT __sysTrackingContext FROM item WHERE k = 'a'").fetchall() == [(str(device),)]


def test_an_insert_without_column_names_fails_with_sqlites_message(file: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="has 6 columns but 3 values"):
        file.execute("INSERT INTO item VALUES ('z', 9, 9)")


@pytest.mark.parametrize("target", ["(k) DO UPDATE SET v = 5", "(code) DO UPDATE SET v = 5", "DO NOTHING"])
def test_an_upsert_that_keeps_the_row_writes_no_tombstone(file: sqlite3.Connection, target: str) -> None:
    file.execute(f"INSERT INTO item (k, code) VALUES ('b', 2) ON CONFLICT {target}")
    assert file.execute("SELECT count(*) FROM __sysOCSDeletedRows").fetchone() == (0,)


def test_a_row_may_change_and_then_its_key_in_one_transaction(file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    file.execute("BEGIN")
    file.execute("UPDATE item SET v = 1 WHERE k = 'a'")
    file.execute("UPDATE item SET k = 'd' WHERE k = 'a'")
    file.execute("COMMIT")
    assert show_since(file, after) == ["D a", "I d"]
