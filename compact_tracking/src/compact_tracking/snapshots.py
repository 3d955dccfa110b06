"""The reading side of a sync: a consistent copy of a device's file, and all its net changes.

The copy is taken with SQLite's backup, of one snapshot of the file. The snapshot begins while the write lock is held,
and the receipt is written under the same lock: no commit falls between the two, so the copy is the file exactly at
the receipt's anchor. With a write-ahead log the device's writers wait for the receipt only, otherwise for the copy as
well.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from compact_tracking.access import check_sqlite, decode_text, guard, open_cursor, read_transaction
from compact_tracking.changes import Anchor, Change, enumerate_table
from compact_tracking.enabling import TrackedTable, check_anchor, check_tracked, list_tracked
from compact_tracking.enumerations import PurgeType
from compact_tracking.errors import AnchorError, AnchorReplacedError, TrackingArgumentError
from compact_tracking.names import quote_name
from compact_tracking.numbers import read_counters
from compact_tracking.purging import check_purge
from compact_tracking.receipts import Receipt, prove_receipt, take_receipt
from compact_tracking.schema import is_installed


@dataclass(frozen=True)
class TableAnchor:
    """The start of a consumer's next window of a table, which it keeps between syncs."""

    device: str
    """The device of the receipt."""
    token: str
    """The token of the table's tracking."""
    anchor: Anchor
    """The position up to which the consumer has the changes."""


@dataclass(frozen=True)
class Snapshot:
    """A copy of a device's file as it was at a receipt."""

    receipt: Receipt
    """The receipt; its anchor is the end of all windows of this sync."""
    connection: sqlite3.Connection
    """A connection to the copy. Texts that are no UTF-8 arrive with lone surrogates."""

    def list_tables(self) -> list[TrackedTable]:
        """Return the tracked tables of the file, by name."""
        return list(self._tables)

    def anchor_of(self, table: str) -> TableAnchor:
        """Return what the consumer keeps for a table once it has the changes, or the rows, of this snapshot.

        Raises:
            TrackingArgumentError: the table is not tracked.
        """
        return TableAnchor(self.receipt.device, self._find(table).token, self.receipt.anchor)

    def read_columns(self, table: str) -> tuple[str, ...]:
        """Return the names of a table's columns, in the order of ``Change.row`` and of ``read_rows``.

        Raises:
            TrackingArgumentError: the table is not tracked.
            TrackingLostError: the table was changed without its tracking.
        """
        cursor = open_cursor(self.connection)
        return tuple(column.name for column in check_tracked(cursor, self._find(table)).columns)

    def read_rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield all rows of a table, for a first load.

        Raises:
            TrackingArgumentError: the table is not tracked.
            TrackingLostError: the table was changed without its tracking.
        """
        columns = ", ".join(map(quote_name, self.read_columns(table)))
        yield from open_cursor(self.connection).execute(f"SELECT {columns} FROM main.{quote_name(table)}")

    def enumerate_changes(self, table: str, after: TableAnchor, *, with_passing: bool = False) -> Iterator[Change]:
        """Yield the net changes of a table since a consumer's anchor, exactly, each key at most once.

        Args:
            table: the table's name.
            after: what the consumer keeps for the table.
            with_passing: also the deletes of rows that came and went since, for a consumer that may have read them in
                between, as one that reads again from an anchor that it did not move.
        Raises:
            TrackingArgumentError: the table is not tracked.
            AnchorReplacedError: the file is another device's, or the table's tracking began again.
            AnchorExpiredError: a purge removed what the window needs.
            TrackingLostError: the table was changed without its tracking.
        """
        tracked = self._find(table)
        if (after.device, after.token) != (self.receipt.device, tracked.token):
            which = "the table's tracking began again" if after.device == self.receipt.device else "the device differs"
            raise AnchorReplacedError(f"the anchor of {table!r} does not belong to this file, {which}: load it again")
        check_anchor(tracked, after.anchor.csn)
        yield from enumerate_table(
            open_cursor(self.connection), tracked, after.anchor, self.receipt.anchor, with_passing=with_passing
        )

    @cached_property
    def _tables(self) -> list[TrackedTable]:
        return list_tracked(open_cursor(self.connection))

    def _find(self, table: str) -> TrackedTable:
        for tracked in self._tables:
            if tracked.name.lower() == table.lower():
                return tracked
        raise TrackingArgumentError(f"{table!r} is not tracked in the file")


@contextmanager
def open_snapshot(
    path: Path,
    consumer: str,
    proof: str | None = None,
    *,
    copy: Path | None = None,
    timeout_seconds: float = 5.0,
    purge_after_days: int | None = None,
) -> Iterator[Snapshot]:
    """Copy a device's file at a new receipt, and give the copy.

    Keep the receipt's token, and ``anchor_of`` each table, once the changes are stored: the token is the next proof.

    Args:
        path: the device's file.
        consumer: the consumer's name, under which the receipt is written.
        proof: the token of the consumer's last receipt; None for a consumer that begins.
        copy: a file to write, which must not exist and which the caller removes; by default the copy is in memory.
        timeout_seconds: how long to wait for a writer of the device.
        purge_after_days: purge what every consumer has in the commit of the receipt, which is cheaper than
            ``ChangeTracking.purge_consumed``, and needs a proof. A consumer without a receipt of so many days is not
            waited for. None: purge nothing.
    Raises:
        TrackingArgumentError: there is no such file, or the copy exists.
        TrackingRangeError: the number of days is negative.
        InvalidOperationError: no table of the file is tracked.
        AnchorRewoundError: the file does not hold the receipt of the proof.
        sqlite3.DatabaseError: the file is no database, is damaged, or was locked for too long.
    """
    check_sqlite()
    if purge_after_days is not None:
        check_purge(PurgeType.TIME_BASED, purge_after_days)
    if copy and copy.exists():
        raise TrackingArgumentError(f"{copy} exists: name a file that does not")
    with (
        closing(open_existing(path, timeout_seconds)) as writer,
        closing(sqlite3.connect(copy or ":memory:")) as target,
    ):
        with closing(open_existing(path, timeout_seconds)) as reader:
            taken = take_receipt(writer, consumer, proof, purge_after_days=purge_after_days if proof else None)
            receipt = copy_at_receipt(taken, reader, target)
        guard(target, path)
        target.text_factory = decode_text
        yield Snapshot(receipt, target)


def is_unchanged(path: Path, consumer: str, proof: str, after: dict[str, TableAnchor]) -> bool:
    """Return whether nothing was committed to a file since a consumer's anchors: a sync would bring nothing.

    Nothing is written. False also for a file that a sync would refuse, which then says why.

    Args:
        path: the device's file.
        consumer: the consumer's name.
        proof: the token of the consumer's last receipt.
        after: the anchor of each table.
    Raises:
        TrackingArgumentError: there is no such file.
    """
    with closing(open_existing(path, 0, "mode=ro")) as connection, read_transaction(connection) as cursor:
        try:
            if not is_installed(cursor):
                return False
            prove_receipt(cursor, consumer, proof)
            device, unnumbered = cursor.execute("SELECT device, tx_bsn FROM __ct_state").fetchone()
            tracked = {table.name.lower(): table for table in list_tracked(cursor)}
            for name, anchor in after.items():
                table = tracked.get(name.lower())
                if table is None or (anchor.device, anchor.token) != (device, table.token):
                    return False
                check_tracked(cursor, table)
                check_anchor(table, anchor.anchor.csn)
            _, next_csn = read_counters(cursor)
        except AnchorError:
            return False
        # A transaction that was committed on its connection alone is numbered by the next sync.
        return unnumbered is None and all(anchor.anchor.csn == next_csn for anchor in after.values())


def read_device(path: Path) -> str | None:
    """Return the random name of the device that a file is of; None for a file without tracking. Nothing is written.

    Raises:
        TrackingArgumentError: there is no such file.
    """
    with closing(open_existing(path, 0, "mode=ro")) as connection:
        cursor = open_cursor(connection)
        return str(cursor.execute("SELECT device FROM __ct_state").fetchone()[0]) if is_installed(cursor) else None


def open_existing(
    path: Path, timeout_seconds: float, mode: str = "mode=rw", *, guarded: bool = True
) -> sqlite3.Connection:
    """Return a connection to a file that is there; SQLite would create a missing one.

    guarded: whether another program wrote the file, see ``access.guard``.
    """
    if not path.is_file():
        raise TrackingArgumentError(f"there is no file {path}")
    uri = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=timeout_seconds)
    if guarded:
        guard(connection, path)
    return connection


def copy_at_receipt(
    taking: AbstractContextManager[Receipt], reader: sqlite3.Connection, target: sqlite3.Connection
) -> Receipt:
    """Copy a file at the receipt that ``taking`` writes, and return the receipt."""
    (mode,) = reader.execute("PRAGMA main.journal_mode").fetchone()
    with taking as receipt:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if mode != "wal":
            # Without a log, a reader keeps the receipt from being committed.
            reader.backup(target)
            reader.execute("COMMIT")
    if mode == "wal":
        reader.backup(target)
    return receipt
