"""The original's system tables, as views, and the documentation's queries on them."""

import sqlite3
from pathlib import Path

import pytest

from compact_files import (
    ITEM,
    list_changes,
    make_file,
    open_file,
    show_printed,
    take_anchor,
)
from compact_tracking import ChangeTracking, Transaction, UnsupportedError


@pytest.fixture
def file(tmp_path: Path) -> sqlite3.Connection:
    return make_file(tmp_path / "device.db", ITEM, "INSERT INTO item (k, code, v) VALUES ('a', 1, 0), ('b', 2, 0)")


def list_columns(file: sqlite3.Connection, view: str) -> list[str]:
    return [column[0] for column in file.execute(f"SELECT * FROM {view}").description]


def test_the_views_have_the_columns_of_both_spellings(file: sqlite3.Connection) -> None:
    assert list_columns(file, "__sysOCSDeletedRows") == [
        "__sysTN",
        "__sysTName",
        "__sysInsertTxBsn",
        "__sysInsertTxCsn",
        "__sysDeleteTxBsn",
        "__sysRK",
        "__sysDeletedTime",
        "__sysTrackingContext",
    ]
    assert list_columns(file, "__sysTxCommitSequence") == ["__sysTxBsn", "__sysTxCsn", "__sysCommitTime"]
    tracked = ["__sysTName", "__sysTrackOpt", "__sysTrackType", "__sysTrackColOrd"]
    assert list_columns(file, "__sysOCSTrackedObjects") == tracked
    assert file.execute("SELECT * FROM __sysOCSTrackedObjects").fetchall() == [("item", 0x70, 1, 1)]


def test_a_tombstone_has_the_numbers_of_insert_and_delete(tmp_path: Path, file: sqlite3.Connection) -> None:
    first, second = (Transaction(open_file(tmp_path / "device.db")) for _ in range(2))
    second.execute("INSERT INTO item (k) VALUES ('c')")
    second.commit()
    first.execute("DELETE FROM item WHERE k IN ('a', 'c')")
    first.commit()
    rows = file.execute(
        "SELECT __sysTN, __sysTName, __sysInsertTxBsn, __sysInsertTxCsn, __sysDeleteTxBsn, hex(__sysRK),"
        " julianday('now') - julianday(__sysDeletedTime) BETWEEN -0.01 AND 0.01 FROM __sysOCSDeletedRows ORDER BY 6"
    ).fetchall()
    assert rows == [
        ("item", "item", None, None, 1, "01000000020000006100", 1),
        ("item", "item", 2, 1, 1, "01000000020000006300", 1),
    ]


@pytest.mark.parametrize("view", ["__sysOCSDeletedRows", "__sysTxCommitSequence", "__sysOCSTrackedObjects"])
def test_the_views_refuse_writes(file: sqlite3.Connection, view: str) -> None:
    for statement in (f"DELETE FROM {view}", f"UPDATE {view} SET rowid = 1", f"INSERT INTO {view} DEFAULT VALUES"):
        with pytest.raises(sqlite3.OperationalError, match=r"cannot modify|no such column|cannot INSERT"):
            file.execute(statement)


def test_the_views_need_no_trust_in_the_schema(tmp_path: Path, file: sqlite3.Connection) -> None:
    file.execute("DELETE FROM item")
    take_anchor(file)
    plain = open_file(tmp_path / "device.db")
    plain.execute("PRAGMA trusted_schema = OFF")
    assert plain.execute("SELECT count(*) FROM __sysOCSDeletedRows WHERE __sysRK IS NOT NULL").fetchone() == (2,)


def test_the_documentations_queries_give_the_right_state_when_deletes_are_applied_first(
    tmp_path: Path, file: sqlite3.Connection
) -> None:
    after = take_anchor(file)
    first, second, third = (Transaction(open_file(tmp_path / "device.db")) for _ in range(3))
    third.execute("INSERT INTO item (k, code) VALUES ('c', 3)")
    third.commit()
    file.execute("DELETE FROM item WHERE k = 'b'")
    first.execute("UPDATE item SET v = 9 WHERE k = 'a'")
    first.commit()
    second.execute("DELETE FROM item WHERE k = 'a'")
    second.execute("INSERT INTO item (k, code) VALUES ('a', 7)")
    second.commit()
    until, _ = list_changes(file, after)
    assert show_printed(file, after, until) == ["D a", "D b", "I a", "I c", "U a", "U c"]


def test_a_file_of_a_newer_library_is_refused(file: sqlite3.Connection) -> None:
    file.execute("UPDATE __ct_state SET format = 2")
    with pytest.raises(UnsupportedError, match="format 2, this version of compact_tracking knows 1"):
        ChangeTracking(file).list_tracked_tables()


def test_a_file_without_tracking_answers_as_one_with_nothing_tracked(tmp_path: Path) -> None:
    file = open_file(tmp_path / "plain.db")
    with ChangeTracking(file) as tracking:
        assert tracking.list_tracked_tables() == []
        assert tracking.get_tracking_options("item") is None
        assert tracking.get_last_committed_csn() == 0
    assert file.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
