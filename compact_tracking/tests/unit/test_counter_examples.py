"""Schedules of transactions under which an enumeration can go wrong, with the documentation's queries and with ours.

SQLite has one writer, so a transaction that is open at an anchor has begun and not written yet.
"""

import sqlite3
from pathlib import Path

import pytest

from compact_files import (
    DELETES,
    ITEM,
    list_changes,
    make_file,
    open_file,
    show,
    show_printed,
    show_since,
    take_anchor,
)
from compact_tracking import Anchor, ChangeTracking, InvalidOperationError, PurgeType, Transaction
from compact_tracking.changes import enumerate_table

UPDATE = "UPDATE item SET v = v + 1 WHERE k = ?"
DELETE = "DELETE FROM item WHERE k = ?"
INSERT = "INSERT INTO item (k, v) VALUES (?, 1)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device.db"


@pytest.fixture
def file(path: Path) -> sqlite3.Connection:
    return make_file(path)


def begin(path: Path, count: int) -> list[Transaction]:
    return [Transaction(open_file(path)) for _ in range(count)]


def list_sequence(file: sqlite3.Connection) -> list[tuple[int, int]]:
    return file.execute("SELECT __sysTxBsn, __sysTxCsn FROM __sysTxCommitSequence ORDER BY 1").fetchall()


def test_five_transactions_get_the_numbers_and_the_rows_of_the_documentation(
    path: Path, file: sqlite3.Connection
) -> None:
    transactions = begin(path, 5)
    assert [transaction.current_transaction_bsn for transaction in transactions] == [1, 2, 3, 4, 5]
    csns = {}
    for number in (1, 3, 4, 2, 5):
        transactions[number - 1].execute(INSERT, (f"t{number}",))
        csns[number] = transactions[number - 1].commit()
    assert csns == {1: 1, 3: 2, 4: 3, 2: 4, 5: 5}
    assert list_sequence(file) == [(2, 4), (3, 2), (4, 3)]
    assert ChangeTracking(file).get_last_committed_csn() == 5


def test_commits_in_reverse_order_give_no_row_where_both_numbers_are_equal(
    path: Path, file: sqlite3.Connection
) -> None:
    transactions = begin(path, 3)
    for transaction in reversed(transactions):
        transaction.execute(UPDATE, ("a",))
        transaction.commit()
    assert list_sequence(file) == [(1, 3), (3, 1)]


def test_a_transaction_open_at_the_anchor_is_not_lost(path: Path, file: sqlite3.Connection) -> None:
    (first,) = begin(path, 1)
    after = take_anchor(file)
    first.execute(UPDATE, ("a",))
    first.commit()
    until, changes = list_changes(file, after)
    assert show(changes) == ["U a"]
    assert after.bsn == 1
    assert show_printed(file, after, until) == ["U a"]
    next_bsn = 2
    assert show_printed(file, after, until, lbsn=next_bsn) == []


def test_a_row_deleted_and_inserted_again_is_an_update(path: Path, file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    (first,) = begin(path, 1)
    first.execute(DELETE, ("a",))
    first.execute(INSERT, ("a",))
    first.commit()
    until, changes = list_changes(file, after)
    assert show(changes) == ["U a"]
    assert show_printed(file, after, until) == ["D a", "I a", "U a"]


def test_a_new_row_is_an_insert_and_no_update(path: Path, file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    (first,) = begin(path, 1)
    first.execute(INSERT, ("b",))
    first.commit()
    until, changes = list_changes(file, after)
    assert show(changes) == ["I b"]
    assert show_printed(file, after, until) == ["I b", "U b"]


def test_a_row_that_came_and_went_is_no_change(path: Path, file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    (first,) = begin(path, 1)
    first.execute(INSERT, ("b",))
    first.execute(DELETE, ("b",))
    first.commit()
    until, changes = list_changes(file, after)
    assert show(changes) == []
    # The view resolves the insert's CSN when it is read. Stored at the delete, it would be NULL: a delete of b.
    assert show_printed(file, after, until) == []
    unknown = DELETES.replace("ut0.__sysInsertTxCsn IS NULL OR ut0.__sysInsertTxCsn < @LCSN", "1 OR @LCSN")
    assert show_printed(file, after, until, deletes=unknown) == ["D b"]


def test_the_delete_of_a_row_is_judged_by_the_csn_of_its_insert(path: Path, file: sqlite3.Connection) -> None:
    first, second = begin(path, 2)
    second.execute(INSERT, ("b",))
    second.commit()
    after = take_anchor(file)
    first.execute(DELETE, ("b",))
    first.commit()
    until, changes = list_changes(file, after)
    assert show(changes) == ["D b"]
    assert show_printed(file, after, until) == ["D b"]
    by_bsn = DELETES.replace("__sysInsertTxCsn", "__sysInsertTxBsn")
    assert show_printed(file, after, until, deletes=by_bsn) == []


@pytest.mark.parametrize("ends", ["rollback", "commit"])
def test_a_bsn_without_a_csn_does_not_shift_later_ones(path: Path, file: sqlite3.Connection, ends: str) -> None:
    first, second, third = begin(path, 3)
    if ends == "rollback":
        first.execute(UPDATE, ("a",))
    getattr(first, ends)()
    after = take_anchor(file)
    second.execute(UPDATE, ("a",))
    assert second.commit() == 1
    until, changes = list_changes(file, after)
    assert show(changes) == ["U a"]
    assert show_printed(file, after, until) == ["U a"]
    assert list_sequence(file) == [(2, 1)]
    third.rollback()
    assert take_anchor(file) == Anchor(csn=4, bsn=4)


def test_the_end_of_a_window_is_one_more_than_the_last_csn(path: Path, file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    (first,) = begin(path, 1)
    first.execute(DELETE, ("a",))
    csn = first.commit()
    assert csn == ChangeTracking(file).get_last_committed_csn() == 1
    until, changes = list_changes(file, after)
    assert (until.csn, show(changes)) == (2, ["D a"])
    assert show_printed(file, after, Anchor(csn=csn, bsn=until.bsn)) == []


def test_a_purge_keeps_the_number_of_a_transaction_above_its_limit(path: Path, file: sqlite3.Connection) -> None:
    first, second = begin(path, 2)
    second.execute(UPDATE, ("a",))
    assert second.commit() == 1
    after = take_anchor(file)
    assert ChangeTracking(file).purge_transaction_sequence_data(PurgeType.CSN_BASED, 2) == 0
    first.execute(UPDATE, ("none",))
    assert first.commit() == 2
    assert show_since(file, after) == []
    # Both numbers of both rows are below 3 now; without the row, a would count as changed at its BSN, which is 2.
    assert ChangeTracking(file).purge_transaction_sequence_data(PurgeType.CSN_BASED, 3) == 2
    assert show_since(file, take_anchor(file)) == []


def test_a_row_that_lives_again_after_the_window_still_died_in_it(path: Path) -> None:
    file = make_file(path, ITEM, "INSERT INTO item (k, v) VALUES ('a', 0)")
    after = take_anchor(file)
    file.execute(DELETE, ("a",))
    with ChangeTracking(file).enumerate_changes("item", after) as (until, changes):
        assert show(changes) == ["D a"]
    file.execute(INSERT, ("a",))
    # Read late, at a state that is newer than the window's end.
    (tracked,) = ChangeTracking(file).list_tracked_tables()
    assert show(enumerate_table(file.cursor(), tracked, after, until)) == ["D a"]
    later, changes_later = list_changes(file, until)
    assert show(changes_later) == ["I a"]
    file.execute(DELETE, ("a",))
    assert show_since(file, later) == ["D a"]


def test_a_transaction_reads_its_own_tombstones_as_not_committed(path: Path, file: sqlite3.Connection) -> None:
    first, second = begin(path, 2)
    second.execute(UPDATE, ("a",))
    second.commit()
    first.execute(DELETE, ("a",))
    tracking = ChangeTracking(first)
    assert tracking.purge_tombstone_table_data("item", PurgeType.CSN_BASED, 100) == 0
    with pytest.raises(InvalidOperationError, match="between transactions"):
        tracking.take_anchor()
    first.commit()
