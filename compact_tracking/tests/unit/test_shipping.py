"""Copies that a device makes for a consumer that cannot reach it."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from compact_files import apply, copy_file, open_file, read_rows, show
from compact_tracking import (
    AnchorRewoundError,
    ChangeTracking,
    DamagedFileError,
    InvalidOperationError,
    TableAnchor,
    TrackingArgumentError,
    Transaction,
    is_read,
    open_shipped,
    ship_copy,
)


class FarConsumer:
    """A consumer that has the copies in a folder only."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        self.rows: dict[Any, tuple[Any, ...]] = {}
        self.anchor: TableAnchor | None = None
        self.proof: str | None = None

    def sync(self) -> list[str]:
        with open_shipped(self.copy, "warehouse", self.proof) as snapshot:
            changes = [] if self.anchor is None else list(snapshot.enumerate_changes("item", self.anchor))
            first = {row[0]: row for row in snapshot.read_rows("item")}
            self.rows = first if self.anchor is None else apply(self.rows, changes)
            assert self.rows == first
            self.anchor, self.proof = snapshot.anchor_of("item"), snapshot.receipt.token
        return show(changes)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "synced"
    folder.mkdir()
    return folder / "device.db"


def test_a_consumer_follows_copies_and_may_miss_some(path: Path, file: sqlite3.Connection, copy: Path) -> None:
    consumer = FarConsumer(copy)
    ship_copy(path, copy, "warehouse")
    assert consumer.sync() == []
    file.execute("DELETE FROM item WHERE k = 'a'")
    ship_copy(path, copy, "warehouse")
    file.execute("INSERT INTO item (k) VALUES ('c')")
    ship_copy(path, copy, "warehouse")
    file.execute("DELETE FROM item")
    assert consumer.sync() == ["D a", "I c"]
    assert consumer.sync() == []
    ship_copy(path, copy, "warehouse")
    assert consumer.sync() == ["D b", "D c"]
    assert consumer.rows == read_rows(file, "item") == {}


def test_a_copy_is_read_until_the_next_one_comes(path: Path, file: sqlite3.Connection, copy: Path) -> None:
    consumer = FarConsumer(copy)
    first = ship_copy(path, copy, "warehouse")
    assert not is_read(copy, "warehouse", "no token")
    assert not is_read(copy, "another", first.token)
    consumer.sync()
    assert consumer.proof == first.token
    assert is_read(copy, "warehouse", first.token)
    ship_copy(path, copy, "warehouse")
    assert not is_read(copy, "warehouse", first.token)
    copy.write_bytes(b"")
    assert not is_read(copy, "warehouse", first.token)


def test_a_copy_is_one_file_and_is_read_where_nothing_can_be_written(
    path: Path, file: sqlite3.Connection, copy: Path
) -> None:
    ship_copy(path, copy, "warehouse")
    content = copy.read_bytes()
    assert list(copy.parent.iterdir()) == [copy]
    FarConsumer(copy).sync()
    assert list(copy.parent.iterdir()) == [copy]
    assert copy.read_bytes() == content


def test_a_device_that_was_put_back_is_noticed(path: Path, file: sqlite3.Connection, copy: Path) -> None:
    consumer, older = FarConsumer(copy), copy_file(file, path.parent / "older.db")
    ship_copy(path, copy, "warehouse")
    consumer.sync()
    restored = open_file(older)
    restored.execute("DELETE FROM item")
    ship_copy(older, copy, "warehouse")
    with pytest.raises(AnchorRewoundError):
        consumer.sync()


def test_a_copy_older_than_the_last_is_noticed(path: Path, file: sqlite3.Connection, copy: Path) -> None:
    consumer, first = FarConsumer(copy), path.parent / "first.db"
    ship_copy(path, copy, "warehouse")
    shutil.copy(copy, first)
    ship_copy(path, copy, "warehouse")
    consumer.sync()
    shutil.copy(first, copy)
    with pytest.raises(AnchorRewoundError):
        consumer.sync()


def test_a_consumer_that_missed_more_copies_than_receipts_are_kept_is_stopped(
    path: Path, file: sqlite3.Connection, copy: Path
) -> None:
    consumer = FarConsumer(copy)
    ship_copy(path, copy, "warehouse")
    consumer.sync()
    for _ in range(3):
        ship_copy(path, copy, "warehouse", kept=3)
    assert consumer.sync() == []
    for _ in range(4):
        ship_copy(path, copy, "warehouse", kept=3)
    with pytest.raises(AnchorRewoundError):
        consumer.sync()


def test_kept_receipts_hold_purges_back(path: Path, file: sqlite3.Connection, copy: Path) -> None:
    consumer = FarConsumer(copy)
    ship_copy(path, copy, "warehouse", kept=2)
    consumer.sync()
    file.execute("DELETE FROM item")
    ship_copy(path, copy, "warehouse", kept=2)
    assert ChangeTracking(file).purge_consumed(30) == 0
    assert consumer.sync() == ["D a", "D b"]
    ship_copy(path, copy, "warehouse", kept=2)
    assert ChangeTracking(file).purge_consumed(30) == 2
    assert consumer.sync() == []


def test_a_copy_that_was_not_shipped_to_the_consumer_is_refused(
    path: Path, file: sqlite3.Connection, copy: Path
) -> None:
    copy_file(file, copy)
    with pytest.raises(InvalidOperationError, match="no receipt for 'warehouse': make the copy with ship_copy"):
        FarConsumer(copy).sync()
    copy.write_bytes(b"")
    with pytest.raises(InvalidOperationError, match="no receipt"):
        FarConsumer(copy).sync()
    copy.unlink()
    with pytest.raises(TrackingArgumentError, match="there is no file"):
        FarConsumer(copy).sync()


@pytest.mark.parametrize("part", [0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_copy_that_was_cut_off_is_refused(path: Path, file: sqlite3.Connection, copy: Path, part: float) -> None:
    with Transaction(file) as transaction:
        rows = ((f"row {number}", number) for number in range(10, 3000))
        transaction.executemany("INSERT INTO item (k, code) VALUES (?, ?)", rows)
    consumer = FarConsumer(copy)
    ship_copy(path, copy, "warehouse")
    consumer.sync()
    ship_copy(path, copy, "warehouse")
    content = copy.read_bytes()
    copy.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(DamagedFileError, match="copy it again from the device"):
        consumer.sync()
    copy.write_bytes(content)
    assert consumer.sync() == []


def test_a_copy_with_pages_of_another_state_is_refused(path: Path, file: sqlite3.Connection, copy: Path) -> None:
    ship_copy(path, copy, "warehouse")
    before = copy.read_bytes()
    with Transaction(file) as transaction:
        rows = ((f"row {number}", number) for number in range(10, 3000))
        transaction.executemany("INSERT INTO item (k, code) VALUES (?, ?)", rows)
    ship_copy(path, copy, "warehouse")
    after = copy.read_bytes()
    half = len(before) // 2
    copy.write_bytes(after[:half] + before[half:] + after[len(before) :])
    with pytest.raises(DamagedFileError):
        FarConsumer(copy).sync()


def test_a_copy_that_fails_leaves_the_one_before(path: Path, file: sqlite3.Connection, copy: Path) -> None:
    ship_copy(path, copy, "warehouse")
    content = copy.read_bytes()
    file.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        ship_copy(path, copy, "warehouse", timeout_seconds=0)
    file.execute("ROLLBACK")
    assert copy.read_bytes() == content
    ship_copy(path, copy, "warehouse")
    assert list(copy.parent.iterdir()) == [copy]
