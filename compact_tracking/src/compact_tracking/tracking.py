"""The main class: tracking is enabled, disabled and asked for, changes are enumerated, tracking data is purged.

The names of the original (System.Data.SqlServerCe) are in the docstrings.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self
from uuid import UUID

from compact_tracking.access import (
    check_sqlite,
    open_cursor,
    read_transaction,
    savepoint,
    write_transaction,
)
from compact_tracking.changes import Anchor, Change, enumerate_table
from compact_tracking.enabling import (
    TrackedTable,
    check_anchor,
    check_tracked,
    disable,
    enable,
    find_tracked,
    list_tracked,
)
from compact_tracking.enumerations import PurgeType, TrackingKeyType, TrackingOptions
from compact_tracking.errors import (
    InvalidOperationError,
    TrackingArgumentError,
    TrackingRangeError,
)
from compact_tracking.key_packing import KeyType, pack_key, unpack_key
from compact_tracking.numbers import read_counters
from compact_tracking.purging import check_purge, purge_sequence, purge_tombstones
from compact_tracking.receipts import Receipt, forget_consumer, purge_consumed, seal, take_receipt
from compact_tracking.schema import is_installed
from compact_tracking.structure import read_table, select_key
from compact_tracking.transaction import Transaction


class ChangeTracking:
    """Control of the change tracking of a file (original: SqlCeChangeTracking, IDisposable).

    On a connection each call is a transaction of its own. On a Transaction the calls are part of it.
    """

    def __init__(self, target: sqlite3.Connection | Transaction) -> None:
        """Take the connection or the transaction to work on; the file is not touched yet.

        Raises:
            UnsupportedError: Python's SQLite is too old.
        """
        check_sqlite()
        self._transaction = target if isinstance(target, Transaction) else None
        self._connection = target.connection if isinstance(target, Transaction) else target

    def enable_tracking(
        self,
        table: str,
        key_type: TrackingKeyType = TrackingKeyType.PRIMARY_KEY,
        options: TrackingOptions = TrackingOptions.ALL,
    ) -> None:
        """Track a table from now on; nothing happens if it is tracked like this (original: EnableTracking).

        A table whose tracking was damaged, by a rebuild for example, is tracked from the start: its anchors end.

        Raises:
            TrackingRangeError: the key type or the options are NONE or unknown.
            TrackingArgumentError: there is no such table, or no such key.
            InvalidOperationError: tracked in another way, a trigger on every UPDATE, or NULL in the key.
            UnsupportedError: the table is of a kind that cannot be tracked.
        """
        kind = _check_key_type(key_type)
        tracked = _check_options(options)
        with self._write() as cursor:
            enable(cursor, table, kind, tracked)

    def disable_tracking(self, table: str) -> None:
        """End the tracking of a table and drop its three columns (original: DisableTracking).

        Raises:
            InvalidOperationError: the table is not tracked.
            UnsupportedError: SQLite is older than 3.35 and cannot drop columns.
        """
        with self._write() as cursor:
            disable(cursor, table)

    def get_tracking_options(self, table: str) -> TrackingOptions | None:
        """Return the operations that are tracked; None for a table that is not (original: GetTrackingOptions)."""
        with self._read() as cursor:
            found = find_tracked(cursor, table)
        return found.options if found else None

    def get_last_committed_csn(self) -> int:
        """Return the CSN of the newest committed transaction, 0 if there is none (original: GetLastCommittedCsn).

        The end of a window is one more: a window ends below its end.
        """
        with self._read() as cursor:
            return read_counters(cursor)[1] - 1 if is_installed(cursor) else 0

    def pack_tombstone_key(self, table: str, values: Sequence[Any]) -> bytes:
        """Return the packed form of a row's key (original: PackTombstoneKey).

        Raises:
            TrackingArgumentError: unknown table, no key, wrong number of values, NULL.
        """
        return pack_key(self._find_key(table), values)

    def unpack_tombstone_key(self, table: str, key: bytes) -> tuple[Any, ...]:
        """Return the values of a packed key, in key order (original: UnpackTombstoneKey).

        Raises:
            TrackingArgumentError: unknown table, no key, or bytes that are no key of it.
        """
        return unpack_key(self._find_key(table), key)

    def purge_tombstone_table_data(self, table: str, purge_type: PurgeType, value: int) -> int:
        """Delete old tombstones of a table, and return how many (original: PurgeTombstoneTableData).

        TIME_BASED deletes those of days before ``value`` days ago, CSN_BASED those with a CSN below ``value``. Anchors
        that need them are expired from then on.

        Raises:
            TrackingRangeError: the purge type is NONE or unknown, or the value is negative.
            TrackingArgumentError: the table is not tracked.
        """
        kind = check_purge(purge_type, value)
        with self._write() as cursor:
            return purge_tombstones(cursor, self._require(cursor, table).table_id, kind, value)

    def purge_transaction_sequence_data(self, purge_type: PurgeType, value: int) -> int:
        """Delete old rows of the sequence table, and return how many (original: PurgeTransactionSequenceData).

        Raises:
            TrackingRangeError: the purge type is NONE or unknown, or the value is negative.
            InvalidOperationError: tombstones of such transactions are still there.
        """
        kind = check_purge(purge_type, value)
        with self._write() as cursor:
            if not is_installed(cursor):
                return 0
            return purge_sequence(cursor, kind, value)

    def list_tracked_tables(self) -> list[TrackedTable]:
        """Return all tracked tables of the file, by name."""
        with self._read() as cursor:
            return list_tracked(cursor)

    def check_table(self, table: str) -> None:
        """Check that nothing of a table's tracking is missing.

        Raises:
            TrackingArgumentError: the table is not tracked.
            TrackingLostError: the table was changed without its tracking.
        """
        with self._read() as cursor:
            check_tracked(cursor, self._require(cursor, table))

    @contextmanager
    def enumerate_changes(self, table: str, after: Anchor) -> Iterator[tuple[Anchor, Iterator[Change]]]:
        """Take an anchor and give the net changes of a table since another one, exactly.

        The block runs inside the write transaction that took the anchor, so other writers wait for it. Store the anchor
        after the changes were applied. For several tables, or a long read, take a snapshot of the file.

        Raises:
            TrackingArgumentError: the table is not tracked.
            TrackingLostError: the table was changed without its tracking.
            AnchorExpiredError: a purge removed what the window needs.
        """
        with self._write() as cursor:
            tracked = self._require(cursor, table)
            until = self._take_anchor(cursor)
            check_anchor(tracked, after.csn)
            yield until, enumerate_table(cursor, tracked, after, until)

    def take_anchor(self) -> Anchor:
        """Return the present position of the file: the start of the first window of a consumer.

        Raises:
            InvalidOperationError: no table of the file is tracked.
        """
        with self._write() as cursor:
            return self._take_anchor(cursor)

    def take_receipt(self, consumer: str, proof: str | None = None) -> Receipt:
        """Take an anchor that no power loss can undo, and leave its receipt in the file.

        Raises:
            InvalidOperationError: no table of the file is tracked, or this is inside a transaction.
            AnchorRewoundError: ``proof``, the token of the consumer's last receipt, is not in the file.
        """
        if self._transaction:
            raise InvalidOperationError("a receipt is taken between transactions: use one on the connection")
        with take_receipt(self._connection, consumer, proof) as receipt:
            return receipt

    def forget_consumer(self, consumer: str) -> None:
        """Drop the receipts of a consumer that will not sync again, so that it holds back no purge."""
        with self._write() as cursor:
            if is_installed(cursor):
                forget_consumer(cursor, consumer)

    def purge_consumed(self, max_age_days: int) -> int:
        """Purge what no consumer needs any more, and return the number of rows that were dropped.

        A consumer without a receipt of the last ``max_age_days`` days is not waited for. Nothing is purged while no
        consumer has one.

        Raises:
            TrackingRangeError: the age is negative.
        """
        check_purge(PurgeType.TIME_BASED, max_age_days)
        with self._write() as cursor:
            return purge_consumed(cursor, max_age_days) if is_installed(cursor) else 0

    def begin_transaction(self, tracking_context: UUID | None = None) -> Transaction:
        """Begin a transaction on the connection (original: SqlCeConnection.BeginTransaction)."""
        return Transaction(self._connection, tracking_context)

    def close(self) -> None:
        """Do nothing: the connection is the caller's (original: Dispose)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _take_anchor(self, cursor: sqlite3.Cursor) -> Anchor:
        if self._transaction:
            raise InvalidOperationError("an anchor is taken between transactions: use one on the connection")
        if not is_installed(cursor):
            raise InvalidOperationError("no table of the file is tracked: enable the tracking of one first")
        return seal(cursor)

    def _require(self, cursor: sqlite3.Cursor, table: str) -> TrackedTable:
        found = find_tracked(cursor, table)
        if found is None:
            raise TrackingArgumentError(f"{table!r} is not tracked: enable its tracking first")
        return found

    def _find_key(self, table: str) -> KeyType:
        with self._read() as cursor:
            found = find_tracked(cursor, table)
            if found:
                return found.key
            columns = select_key(read_table(cursor, table), TrackingKeyType.PRIMARY_KEY)
        return KeyType(tuple((column.name, column.declared_type) for column in columns), is_guid=False)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Cursor]:
        if self._transaction:
            with savepoint(self._transaction.start_writing()) as cursor:
                yield cursor
        else:
            with write_transaction(self._connection) as cursor:
                yield cursor

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Cursor]:
        if self._transaction:
            yield self._transaction.start_reading()
        elif self._connection.in_transaction:
            # A question inside the caller's own transaction is answered by what that sees.
            yield open_cursor(self._connection)
        else:
            with read_transaction(self._connection) as cursor:
                yield cursor


def _check_key_type(value: TrackingKeyType) -> TrackingKeyType:
    if value not in (TrackingKeyType.PRIMARY_KEY, TrackingKeyType.GUID):
        raise TrackingRangeError(f"{value!r} is no type of key: use PRIMARY_KEY or GUID")
    return TrackingKeyType(value)


def _check_options(value: TrackingOptions) -> TrackingOptions:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= TrackingOptions.ALL:
        raise TrackingRangeError(f"{value!r} names no operations to track: use a combination of TrackingOptions")
    return TrackingOptions(value)
