"""The reading side: copies of a device's file, receipts, and files that are not what the consumer expects."""

import copy
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from compact_files import apply, copy_file, make_file, open_file, read_rows, show
from compact_tracking import (
    AnchorExpiredError,
    AnchorReplacedError,
    AnchorRewoundError,
    ChangeTracking,
    DamagedFileError,
    InvalidOperationError,
    PurgeType,
    Snapshot,
    TrackingArgumentError,
    TrackingLostError,
    TrackingRangeError,
    Transaction,
    access,
    guard,
    is_unchanged,
    open_snapshot,
    read_device,
)


class Consumer:
    """A consumer that keeps the rows of the table ``item``, its anchor, and the proof for the next sync."""

    def __init__(self, path: Path, purge_after_days: int | None = None) -> None:
        self.path = path
        self.purge_after_days = purge_after_days
        self.proof: str | None = None
        with self.open() as snapshot:
            self.rows = {row[0]: row for row in snapshot.read_rows("item")}
            self.anchor, self.proof = snapshot.anchor_of("item"), snapshot.receipt.token

    @contextmanager
    def open(self) -> Iterator[Snapshot]:
        days = self.purge_after_days
        with open_snapshot(self.path, "warehouse", self.proof, timeout_seconds=0.2, purge_after_days=days) as snapshot:
            yield snapshot

    def sync(self) -> list[str]:
        """Apply the changes since the last sync and return them as short texts."""
        with self.open() as snapshot:
            changes = list(snapshot.enumerate_changes("item", self.anchor))
            self.rows = apply(self.rows, changes)
            self.anchor, self.proof = snapshot.anchor_of("item"), snapshot.receipt.token
        return show(changes)


def test_a_consumer_follows_a_device(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    assert consumer.rows == {"a": ("a", 1, 0), "b": ("b", 2, 0)}
    file.execute("REPLACE INTO item (k, code, v) VALUES ('c', 1, 7)")
    with Transaction(file) as transaction:
        transaction.execute("UPDATE item SET v = 9 WHERE k = 'b'")
    assert consumer.sync() == ["D a", "I c", "U b"]
    assert consumer.rows == read_rows(file, "item")
    assert consumer.sync() == []


def test_a_snapshot_has_the_columns_without_those_of_the_tracking(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    with consumer.open() as snapshot:
        assert snapshot.read_columns("item") == ("k", "code", "v")
        assert [table.name for table in snapshot.list_tables()] == ["item"]
        with pytest.raises(TrackingArgumentError, match="'other' is not tracked"):
            snapshot.read_columns("other")


def test_all_tables_are_read_at_one_cut(path: Path, file: sqlite3.Connection) -> None:
    file.execute("CREATE TABLE part (id INTEGER PRIMARY KEY, v)")
    ChangeTracking(file).enable_tracking("part")
    consumer = Consumer(path)
    with consumer.open() as snapshot:
        file.execute("DELETE FROM item")
        file.execute("INSERT INTO part (v) VALUES (1)")
        assert list(snapshot.enumerate_changes("item", consumer.anchor)) == []
        assert list(snapshot.read_rows("part")) == []
    assert consumer.sync() == ["D a", "D b"]


def test_writers_wait_for_the_receipt_only(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    with consumer.open() as snapshot:
        open_file(path, timeout=0).execute("UPDATE item SET v = 5")
        assert {row[2] for row in snapshot.read_rows("item")} == {0}


def test_a_consumer_that_stopped_before_it_stored_the_receipt_continues(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    file.execute("DELETE FROM item WHERE k = 'a'")
    for _ in range(12):
        with consumer.open() as snapshot:
            assert show(snapshot.enumerate_changes("item", consumer.anchor)) == ["D a"]
    assert file.execute("SELECT count(*) FROM __ct_receipts").fetchone() == (9,)
    assert consumer.sync() == ["D a"]
    assert consumer.sync() == []
    assert file.execute("SELECT count(*) FROM __ct_receipts").fetchone() == (2,)


def test_a_row_that_came_and_went_is_deleted_for_who_may_have_read_it(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    file.execute("INSERT INTO item (k) VALUES ('passing'), ('again')")
    file.execute("DELETE FROM item WHERE k IN ('passing', 'again', 'a')")
    file.execute("INSERT INTO item (k) VALUES ('again')")
    with consumer.open() as snapshot:
        assert show(snapshot.enumerate_changes("item", consumer.anchor)) == ["D a", "I again"]
        assert show(snapshot.enumerate_changes("item", consumer.anchor, with_passing=True)) == [
            "D a",
            "D passing",
            "I again",
        ]


def test_a_read_that_was_given_up_and_still_runs_does_not_end_the_next_one(
    path: Path, file: sqlite3.Connection
) -> None:
    consumer = Consumer(path)
    file.execute("DELETE FROM item WHERE k = 'a'")
    late = Consumer(path)
    late.proof, late.anchor = consumer.proof, consumer.anchor
    with consumer.open() as snapshot:
        kept = snapshot.receipt.token
    with late.open():
        pass
    consumer.proof = kept
    with consumer.open() as snapshot:
        assert show(snapshot.enumerate_changes("item", consumer.anchor)) == ["D a"]


def test_a_file_is_unchanged_until_something_is_committed(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)

    def unchanged() -> bool:
        assert consumer.proof is not None
        return is_unchanged(path, "warehouse", consumer.proof, {"ITEM": consumer.anchor})

    for write in (
        "UPDATE item SET v = 9 WHERE k = 'b'",
        "DELETE FROM item WHERE k = 'b'",
        "REPLACE INTO item (k) VALUES ('a')",
    ):
        assert unchanged()
        file.execute(write)
        assert not unchanged()
        consumer.sync()
    with Transaction(file) as transaction:
        transaction.execute("INSERT INTO item (k) VALUES ('open')")
        assert unchanged()
    assert not unchanged()
    consumer.sync()
    file.execute("BEGIN")
    file.execute("DELETE FROM item")
    file.execute("ROLLBACK")
    assert unchanged()
    transaction = Transaction(file)
    transaction.execute("INSERT INTO item (k) VALUES ('committed without its number')")
    file.commit()
    assert not unchanged()
    assert consumer.sync() == ["I committed without its number"]
    with pytest.raises(TrackingArgumentError, match="there is no file"):
        is_unchanged(path.parent / "absent.db", "warehouse", "proof", {})


def test_a_file_that_a_sync_refuses_is_not_unchanged(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    assert consumer.proof is not None
    after = {"item": consumer.anchor}
    assert is_unchanged(path, "warehouse", consumer.proof, after)
    assert not is_unchanged(path, "another", consumer.proof, after)
    assert not is_unchanged(path, "warehouse", "another", after)
    assert not is_unchanged(path, "warehouse", consumer.proof, {"other": consumer.anchor})
    file.execute("ALTER TABLE item RENAME TO renamed")
    assert not is_unchanged(path, "warehouse", consumer.proof, after)


def test_the_device_of_a_file_is_read_without_a_receipt(path: Path, file: sqlite3.Connection) -> None:
    receipts = "SELECT count(*) FROM __ct_receipts"
    before = file.execute(receipts).fetchone()
    assert read_device(path) == file.execute("SELECT device FROM __ct_state").fetchone()[0]
    assert file.execute(receipts).fetchone() == before
    with sqlite3.connect(path.parent / "plain.db") as plain:
        plain.execute("CREATE TABLE t (a)")
    plain.close()
    assert read_device(path.parent / "plain.db") is None


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_file_put_back_to_an_older_copy_is_noticed(path: Path, file: sqlite3.Connection, more: int) -> None:
    consumer = Consumer(path)
    older = copy_file(file, path.parent / "older.db")
    file.execute("INSERT INTO item (k) VALUES ('lost')")
    consumer.sync()
    file.close()
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    shutil.copy(older, path)
    restored = open_file(path)
    for number in range(more):
        with Transaction(restored) as transaction:
            transaction.execute("INSERT INTO item (k) VALUES (?)", (f"new {number}",))
    with pytest.raises(AnchorRewoundError, match="put back from an older copy"):
        consumer.sync()


def test_a_copy_from_before_the_first_sync_is_noticed(path: Path, file: sqlite3.Connection) -> None:
    older = copy_file(file, path.parent / "older.db")
    consumer = Consumer(path)
    consumer.path = older
    with pytest.raises(AnchorRewoundError):
        consumer.sync()


def test_a_copy_of_the_last_state_is_followed_and_the_original_then_is_not(
    path: Path, file: sqlite3.Connection
) -> None:
    consumer = Consumer(path)
    moved = copy_file(file, path.parent / "moved.db")
    consumer.path = moved
    open_file(moved).execute("DELETE FROM item WHERE k = 'b'")
    assert consumer.sync() == ["D b"]
    consumer.sync()
    consumer.path = path
    with pytest.raises(AnchorRewoundError):
        consumer.sync()


def test_a_table_that_was_tracked_again_is_noticed(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    file.execute("DROP TRIGGER __ct_1_delete")
    with pytest.raises(TrackingLostError):
        consumer.sync()
    ChangeTracking(file).enable_tracking("item")
    with pytest.raises(AnchorReplacedError, match="the table's tracking began again"):
        consumer.sync()


def test_another_devices_file_is_noticed(path: Path, file: sqlite3.Connection) -> None:
    consumer, other = Consumer(path), path.parent / "other.db"
    make_file(other)
    consumer.path = other
    with pytest.raises(AnchorRewoundError):
        consumer.sync()
    consumer.proof = None
    with pytest.raises(AnchorReplacedError, match="the device differs"):
        consumer.sync()


def test_an_anchor_below_a_purge_is_expired(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    file.execute("DELETE FROM item WHERE k = 'a'")
    ChangeTracking(file).purge_tombstone_table_data("item", PurgeType.CSN_BASED, 100)
    with pytest.raises(AnchorExpiredError):
        consumer.sync()


def test_what_a_consumer_acknowledged_is_purged_on_the_device(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    file.execute("DELETE FROM item WHERE k = 'a'")
    assert ChangeTracking(file).purge_consumed(30) == 0
    consumer.sync()
    consumer.sync()
    assert ChangeTracking(file).purge_consumed(30) == 1
    file.execute("DELETE FROM item WHERE k = 'b'")
    assert consumer.sync() == ["D b"]


def test_a_receipt_purges_what_its_proof_shows(path: Path, file: sqlite3.Connection) -> None:
    """The changes that the consumer is about to read stay, however long it was away, and others were not."""
    consumer = Consumer(path, purge_after_days=30)
    file.execute("DELETE FROM item WHERE k = 'a'")
    assert consumer.sync() == ["D a"]
    left = "SELECT count(*) FROM __ct_tombstones"
    assert file.execute(left).fetchone() == (1,)
    file.execute("DELETE FROM item WHERE k = 'b'")
    file.execute("UPDATE __ct_receipts SET written_at = datetime('now', '-40 days')")
    ChangeTracking(file).take_receipt("other")
    assert copy.copy(consumer).sync() == ["D b"]
    assert file.execute(left).fetchone() == (1,)
    assert consumer.sync() == ["D b"]
    assert consumer.sync() == []
    assert file.execute(left).fetchone() == (0,)
    with pytest.raises(TrackingRangeError):
        Consumer(path, purge_after_days=-1)


def test_a_receipt_is_written_synchronously(path: Path, file: sqlite3.Connection) -> None:
    file.execute("PRAGMA synchronous = OFF")
    traced: list[str] = []
    file.set_trace_callback(traced.append)
    ChangeTracking(file).take_receipt("warehouse")
    file.set_trace_callback(None)
    assert traced.index("PRAGMA main.synchronous = 3") < traced.index("BEGIN IMMEDIATE") < traced.index("COMMIT")
    assert file.execute("PRAGMA synchronous").fetchone() == (0,)


def test_a_file_without_tracking_gets_no_receipt(tmp_path: Path) -> None:
    open_file(tmp_path / "plain.db").execute("CREATE TABLE t (a)")
    with (
        pytest.raises(InvalidOperationError, match="no table of the file is tracked"),
        open_snapshot(tmp_path / "plain.db", "warehouse"),
    ):
        pass
    with Transaction(open_file(tmp_path / "plain.db")) as transaction, pytest.raises(InvalidOperationError):
        ChangeTracking(transaction).take_receipt("warehouse")


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    with (
        pytest.raises(TrackingArgumentError, match="there is no file"),
        open_snapshot(tmp_path / "none.db", "warehouse"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_copy_may_be_kept_in_a_file(path: Path, file: sqlite3.Connection) -> None:
    copy = path.parent / "copy.db"
    with open_snapshot(path, "warehouse", copy=copy) as snapshot:
        assert dict(open_file(copy).execute("SELECT k, v FROM item")) == {"a": 0, "b": 0}
        assert len(list(snapshot.read_rows("item"))) == 2


def test_a_copy_is_never_overwritten(path: Path, file: sqlite3.Connection) -> None:
    with pytest.raises(TrackingArgumentError, match="exists"), open_snapshot(path, "warehouse", copy=path):
        pass


def test_a_file_that_is_half_copied_is_no_database_or_has_no_receipt(path: Path, file: sqlite3.Connection) -> None:
    file.execute("BEGIN")
    file.executemany("INSERT INTO item (k, v) VALUES (?, 1)", ((f"row {number}",) for number in range(3000)))
    file.execute("COMMIT")
    consumer = Consumer(path)
    file.execute("UPDATE item SET v = 2")
    half = path.parent / "half.db"
    content = path.read_bytes()
    for size in (0, 50, len(content) // 2):
        half.write_bytes(content[:size])
        consumer.path = half
        with pytest.raises((sqlite3.DatabaseError, InvalidOperationError, AnchorRewoundError)):
            consumer.sync()


def test_a_file_copied_without_its_log_is_the_older_state_and_noticed(path: Path) -> None:
    file = make_file(path)
    file.execute("PRAGMA wal_autocheckpoint = 0")
    Consumer(path)
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    consumer = Consumer(path)
    file.execute("DELETE FROM item")
    consumer.path = path.parent / "copied.db"
    shutil.copy(path, consumer.path)
    with pytest.raises(AnchorRewoundError):
        consumer.sync()
    consumer.path = path
    assert consumer.sync() == ["D a"]


def test_texts_that_are_no_utf_8_reach_the_consumer(path: Path, file: sqlite3.Connection) -> None:
    file.execute("PRAGMA foreign_keys = ON")
    file.execute("INSERT INTO item (k, v) VALUES (CAST(x'61ff' AS TEXT), CAST(x'fe' AS TEXT))")
    consumer = Consumer(path)
    assert consumer.rows["a\udcff"] == ("a\udcff", None, "\udcfe")
    with Transaction(file) as transaction:
        transaction.execute("DELETE FROM item WHERE v IS NOT 0")
    assert consumer.sync() == ["D a\udcff"]
    ((packed,),) = file.execute("SELECT __sysRK FROM __sysOCSDeletedRows").fetchall()
    assert ChangeTracking(file).unpack_tombstone_key("item", packed) == ("a\udcff",)


def test_a_transaction_that_was_committed_on_its_connection_is_in_the_snapshot(
    path: Path, file: sqlite3.Connection
) -> None:
    consumer = Consumer(path)
    transaction = Transaction(open_file(path))
    transaction.execute("UPDATE item SET v = 1 WHERE k = 'a'")
    transaction.connection.commit()
    assert consumer.sync() == ["U a"]
    file.execute("UPDATE item SET v = 1 WHERE k = 'b'")
    assert consumer.sync() == ["U b"]


def test_a_locked_file_ends_in_sqlites_message(path: Path, file: sqlite3.Connection) -> None:
    consumer = Consumer(path)
    file.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        consumer.sync()
    file.execute("ROLLBACK")
    assert consumer.sync() == []


_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"


@pytest.mark.parametrize("name", ["__ct_tables", "__CT_RECEIPTS", "__ct_sequence"])
def test_view_in_place_of_a_table_of_the_tracking_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "device.db"
    with make_file(path, "CREATE TABLE item (id INTEGER PRIMARY KEY)") as file:
        for view in ("__sysOCSDeletedRows", "__sysTxCommitSequence", "__sysOCSTrackedObjects"):
            file.execute(f"DROP VIEW {view}")
        file.execute(f"ALTER TABLE {name} RENAME TO kept")
        file.execute(f"CREATE VIEW {name} AS {_ENDLESS}")
    with pytest.raises(DamagedFileError, match=f"the file's {name} is not a table of the tracking"):
        read_device(path)
    with pytest.raises(DamagedFileError), open_snapshot(path, "warehouse"):
        pass


def test_statement_of_a_guarded_connection_ends_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "DEADLINE_SECONDS", 0.05)
    path = tmp_path / "device.db"
    with make_file(path, "CREATE TABLE item (id INTEGER PRIMARY KEY)") as file:
        file.execute(f"CREATE VIEW endless AS {_ENDLESS}")
        guard(file, path)
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            file.execute("SELECT * FROM endless").fetchall()
        with pytest.raises(sqlite3.DataError, match="too big"):
            file.execute("SELECT length(zeroblob(100000000))")


def test_trigger_that_never_ends_keeps_no_consumer_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "DEADLINE_SECONDS", 0.2)
    path = tmp_path / "device.db"
    with make_file(path, "CREATE TABLE item (id INTEGER PRIMARY KEY)") as file:
        file.execute("CREATE TABLE more (i)")
        file.execute(
            f"CREATE TRIGGER t AFTER INSERT ON __ct_receipts BEGIN INSERT INTO more SELECT * FROM ({_ENDLESS}); END"
        )
    with pytest.raises(sqlite3.OperationalError, match="interrupted"), open_snapshot(path, "warehouse"):
        pass
    assert open_file(path).execute("SELECT count(*) FROM __ct_receipts").fetchone() == (0,)


def test_file_whose_log_is_removed_while_it_is_opened_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last connection of a device's program closes at that moment."""
    path, log = tmp_path / "van-1.db", tmp_path / "van-1.db-wal"
    path.touch()
    log.touch()
    stat = Path.stat

    def stat_before_removal(file: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = stat(file, follow_symlinks=follow_symlinks)
        if file == log:
            log.unlink()
        return found

    monkeypatch.setattr(Path, "stat", stat_before_removal)
    with closing(sqlite3.connect(":memory:")) as connection:
        guard(connection, path)
    assert not log.exists()
