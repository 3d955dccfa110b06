"""Purges: what goes, what stays, and anchors that they end."""

import sqlite3
from pathlib import Path

import pytest

from compact_files import ITEM, make_file, open_file, show_since, take_anchor
from compact_tracking import (
    Anchor,
    AnchorExpiredError,
    ChangeTracking,
    InvalidOperationError,
    PurgeType,
    TrackingArgumentError,
    TrackingRangeError,
    Transaction,
)


@pytest.fixture
def file(tmp_path: Path) -> sqlite3.Connection:
    connection = make_file(tmp_path / "device.db", ITEM, "INSERT INTO item (k) VALUES ('a'), ('b'), ('c')")
    for key in "abc":
        with Transaction(connection) as transaction:
            transaction.execute("DELETE FROM item WHERE k = ?", (key,))
    return connection


def list_deleted(file: sqlite3.Connection) -> list[int]:
    return [bsn for (bsn,) in file.execute("SELECT __sysDeleteTxBsn FROM __sysOCSDeletedRows ORDER BY 1")]


def test_tombstones_below_the_csn_go_and_anchors_below_it_expire(file: sqlite3.Connection) -> None:
    tracking = ChangeTracking(file)
    assert tracking.purge_tombstone_table_data("item", PurgeType.CSN_BASED, 2) == 1
    assert list_deleted(file) == [2, 3]
    assert show_since(file, Anchor(csn=2, bsn=2)) == ["D b", "D c"]
    with pytest.raises(AnchorExpiredError, match=r"below CSN 2 were purged.*is at 1: load the table again"):
        show_since(file, Anchor(csn=1, bsn=1))


def test_a_purge_above_the_last_commit_expires_nothing_to_come(file: sqlite3.Connection) -> None:
    assert ChangeTracking(file).purge_tombstone_table_data("item", PurgeType.CSN_BASED, 1000) == 3
    after = take_anchor(file)
    file.execute("INSERT INTO item (k) VALUES ('d')")
    assert show_since(file, after) == ["I d"]


def test_tombstones_of_the_first_day_to_keep_stay(file: sqlite3.Connection) -> None:
    for bsn, age in ((1, "-6 days"), (2, "-5 days"), (3, "+400 days")):
        file.execute("UPDATE __ct_tombstones SET deleted_at = datetime('now', ?) WHERE delete_bsn = ?", (age, bsn))
    tracking = ChangeTracking(file)
    assert tracking.purge_tombstone_table_data("item", PurgeType.TIME_BASED, 5) == 1
    assert list_deleted(file) == [2, 3]
    with pytest.raises(AnchorExpiredError):
        show_since(file, Anchor(csn=1, bsn=1))
    assert show_since(file, Anchor(csn=2, bsn=2)) == ["D b", "D c"]


def test_a_clock_that_jumped_ahead_purges_too_much_but_not_silently(file: sqlite3.Connection) -> None:
    after = take_anchor(file)
    file.execute("DELETE FROM item")
    file.execute("INSERT INTO item (k) VALUES ('d')")
    file.execute("DELETE FROM item")
    file.execute("UPDATE __ct_tombstones SET deleted_at = '1980-01-01T00:00:00.000Z'")
    assert ChangeTracking(file).purge_tombstone_table_data("item", PurgeType.TIME_BASED, 7) == 4
    with pytest.raises(AnchorExpiredError):
        show_since(file, after)


def drift(file: sqlite3.Connection, path: Path) -> None:
    """Leave rows in the sequence table: two transactions that commit in reverse order."""
    first, second = (Transaction(open_file(path)) for _ in range(2))
    for transaction in (second, first):
        transaction.execute("INSERT INTO item (k) VALUES (?)", (str(transaction.current_transaction_bsn),))
        transaction.commit()
    assert file.execute("SELECT __sysTxBsn, __sysTxCsn FROM __sysTxCommitSequence ORDER BY 1").fetchall() == [
        (4, 5),
        (5, 4),
    ]


def test_the_sequence_is_purged_after_the_tombstones(tmp_path: Path, file: sqlite3.Connection) -> None:
    drift(file, tmp_path / "device.db")
    tracking = ChangeTracking(file)
    with pytest.raises(InvalidOperationError, match="below 5 are still there: purge the tombstones first"):
        tracking.purge_transaction_sequence_data(PurgeType.CSN_BASED, 5)
    tracking.purge_tombstone_table_data("item", PurgeType.CSN_BASED, 5)
    assert tracking.purge_transaction_sequence_data(PurgeType.CSN_BASED, 5) == 0
    assert tracking.purge_transaction_sequence_data(PurgeType.CSN_BASED, 6) == 2
    assert show_since(file, Anchor(csn=6, bsn=6)) == []
    with pytest.raises(AnchorExpiredError):
        show_since(file, Anchor(csn=5, bsn=5))


def test_the_sequence_is_purged_by_days(tmp_path: Path, file: sqlite3.Connection) -> None:
    drift(file, tmp_path / "device.db")
    tracking = ChangeTracking(file)
    tracking.purge_tombstone_table_data("item", PurgeType.CSN_BASED, 6)
    assert tracking.purge_transaction_sequence_data(PurgeType.TIME_BASED, 1) == 0
    file.execute("UPDATE __ct_sequence SET committed_at = datetime('now', '-3 days')")
    assert tracking.purge_transaction_sequence_data(PurgeType.TIME_BASED, 1) == 2
    with pytest.raises(AnchorExpiredError):
        show_since(file, Anchor(csn=5, bsn=5))


def test_a_row_of_the_sequence_stays_while_its_bsn_is_still_to_come_as_a_csn(
    tmp_path: Path, file: sqlite3.Connection
) -> None:
    tracking = ChangeTracking(file)
    tracking.purge_tombstone_table_data("item", PurgeType.CSN_BASED, 4)
    begun = [Transaction(open_file(tmp_path / "device.db")) for _ in range(3)]
    begun[2].execute("INSERT INTO item (k) VALUES ('last')")
    begun[2].commit()
    file.execute("UPDATE __ct_sequence SET committed_at = '1999-01-01'")
    assert tracking.purge_transaction_sequence_data(PurgeType.TIME_BASED, 1) == 0
    after = take_anchor(file)
    begun[0].execute("INSERT INTO item (k) VALUES ('first')")
    begun[0].commit()
    assert show_since(file, after) == ["I first"]


@pytest.mark.parametrize(
    ("purge_type", "value", "message"),
    [
        (PurgeType.NONE, 1, "no measure of a purge"),
        (3, 1, "no measure of a purge"),
        (PurgeType.CSN_BASED, -1, "at least 0, not -1"),
        (PurgeType.TIME_BASED, 1.5, "whole number"),
        (PurgeType.TIME_BASED, 10**9, "before the first year"),
    ],
)
def test_arguments_out_of_range_are_refused(
    file: sqlite3.Connection, purge_type: PurgeType, value: int, message: str
) -> None:
    tracking = ChangeTracking(file)
    with pytest.raises(TrackingRangeError, match=message):
        tracking.purge_tombstone_table_data("item", purge_type, value)
    with pytest.raises(TrackingRangeError, match=message):
        tracking.purge_transaction_sequence_data(purge_type, value)


def test_a_table_that_is_not_tracked_is_not_purged(file: sqlite3.Connection) -> None:
    with pytest.raises(TrackingArgumentError, match="'other' is not tracked"):
        ChangeTracking(file).purge_tombstone_table_data("other", PurgeType.CSN_BASED, 1)


def test_consumers_hold_purges_back_until_they_are_too_old(tmp_path: Path, file: sqlite3.Connection) -> None:
    tracking = ChangeTracking(file)
    assert tracking.purge_consumed(30) == 0
    slow = tracking.take_receipt("slow")
    file.execute("INSERT INTO item (k) VALUES ('d'), ('e')")
    file.execute("DELETE FROM item WHERE k = 'd'")
    tracking.take_receipt("fast")
    assert tracking.purge_consumed(30) == 3
    assert show_since(file, slow.anchor) == ["I e"]
    file.execute("UPDATE __ct_receipts SET written_at = datetime('now', '-31 days') WHERE consumer = 'slow'")
    assert tracking.purge_consumed(30) == 1
    with pytest.raises(AnchorExpiredError):
        show_since(file, slow.anchor)
    for _ in range(12):
        tracking.take_receipt("fast")
    assert file.execute("SELECT count(*) FROM __ct_receipts WHERE consumer = 'fast'").fetchone() == (8,)
    tracking.forget_consumer("fast")
    assert tracking.purge_consumed(30) == 0
