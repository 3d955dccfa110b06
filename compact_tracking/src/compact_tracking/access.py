"""Access to a caller's connection: cursors that no row factory changes, write transactions, the minimum SQLite.

The library sets nothing on a connection that stays. It needs one without an open transaction.

A consumer opens files that others have written, with views, triggers and generated columns of theirs: see ``guard``.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compact_tracking.errors import InvalidOperationError, TrackingArgumentError, UnsupportedError

DEADLINE_SECONDS = 60.0
"""How long the statements of a guarded connection may take, besides what the size of its file adds."""

_BYTES_PER_SECOND = 5_000_000
_STEPS = 10_000
_SPARE_BYTES = 64 * 1024 * 1024
_LONGEST_VALUE = 1_000_000_000

MINIMUM_SQLITE = (3, 26, 0)
"""The first version with ``PRAGMA table_xinfo``; the one of Red Hat Enterprise Linux 8."""

DROP_COLUMN_SQLITE = (3, 35, 0)
"""The first version with ALTER TABLE … DROP COLUMN, which ending the tracking of a table needs."""


def check_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raise UnsupportedError when Python's SQLite is too old."""
    if version < MINIMUM_SQLITE:
        raise UnsupportedError(
            f"SQLite {_dotted(version)} is too old for compact_tracking, which needs {_dotted(MINIMUM_SQLITE)} or"
            " later: use a Python that is linked with a newer SQLite library"
        )


def guard(connection: sqlite3.Connection, path: Path) -> None:
    """Limit what the SQL that a file defines itself may do on a connection to the file, or to a copy of it.

    A statement that still runs at the deadline ends with SQLITE_INTERRUPT, and so does each later one. A value that is
    much longer than the file, as only a generated column can make one, ends its statement with SQLITE_TOOBIG. Functions
    with side effects are refused in views, triggers and generated columns.
    """
    size_bytes = _size_bytes(path) + _size_bytes(Path(f"{path}-wal"))
    ends_at = time.monotonic() + DEADLINE_SECONDS + size_bytes / _BYTES_PER_SECOND
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(_LONGEST_VALUE, size_bytes + _SPARE_BYTES))
    connection.set_progress_handler(lambda: time.monotonic() > ends_at, _STEPS)


def _size_bytes(path: Path) -> int:
    """Return the size of a file, 0 where it is absent: the last connection that closes removes the write-ahead log."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def check_drop_column(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raise UnsupportedError when Python's SQLite cannot drop columns."""
    if version < DROP_COLUMN_SQLITE:
        raise UnsupportedError(
            f"SQLite {_dotted(version)} cannot drop the columns of the tracking, which needs"
            f" {_dotted(DROP_COLUMN_SQLITE)} or later: disable the tracking with a newer SQLite"
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def decode_text(data: bytes) -> str:
    """Return a stored text; bytes that are no UTF-8, which SQLite accepts, become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


@contextmanager
def any_text(connection: sqlite3.Connection) -> Iterator[None]:
    """Read texts in a block also where they are no UTF-8."""
    before, connection.text_factory = connection.text_factory, decode_text
    try:
        yield
    finally:
        connection.text_factory = before


def open_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor that gives plain tuples, whatever row factory the connection has."""
    if connection.text_factory not in (str, decode_text):
        raise TrackingArgumentError("the connection has a text_factory: use one whose text_factory is str")
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """Run a block as one write transaction of its own, which waits for other writers first."""
    with _transaction(connection, "BEGIN IMMEDIATE") as cursor:
        yield cursor


@contextmanager
def read_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """Run a block in one snapshot of the file."""
    with _transaction(connection, "BEGIN") as cursor:
        yield cursor


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Cursor]:
    if connection.in_transaction:
        raise InvalidOperationError(
            "the connection has an open transaction: commit it or roll it back first, and open the connection with"
            " isolation_level=None (in Python 3.12 and later: not with autocommit=False)"
        )
    cursor = open_cursor(connection)
    cursor.execute(begin)
    try:
        yield cursor
        cursor.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            cursor.execute("ROLLBACK")
        raise


@contextmanager
def savepoint(cursor: sqlite3.Cursor) -> Iterator[sqlite3.Cursor]:
    """Run a block inside an open transaction so that it happens wholly or not at all."""
    cursor.execute("SAVEPOINT __ct_step")
    try:
        yield cursor
    except BaseException:
        cursor.execute("ROLLBACK TO __ct_step")
        raise
    finally:
        cursor.execute("RELEASE __ct_step")
