"""Copies of a device's file for a consumer that cannot reach it, as through a folder that is synced one way.

The device takes the receipt, keeps the last ones, and writes the new one into the copy too. The consumer proves its
own on the copy. A transport may cut a copy off, so all of it is checked before it is read.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from compact_tracking.access import check_sqlite, decode_text, open_cursor
from compact_tracking.errors import DamagedFileError, InvalidOperationError
from compact_tracking.receipts import Receipt, prove_receipt, read_last_receipt, take_receipt, write_receipt
from compact_tracking.snapshots import Snapshot, copy_at_receipt, open_existing


def ship_copy(path: Path, copy: Path, consumer: str, *, kept: int = 100, timeout_seconds: float = 5.0) -> Receipt:
    """Write a copy of a device's file for a consumer that cannot reach the device; for a program on the device.

    The copy is one file without a log, and appears under its name when it is complete; one that is there is replaced.

    Args:
        path: the device's file.
        copy: the file to write.
        consumer: the consumer's name.
        kept: how many receipts the device keeps: of so many copies in a row the consumer has to read one.
        timeout_seconds: how long to wait for a writer of the device.
    Raises:
        TrackingArgumentError: there is no such file.
        InvalidOperationError: no table of the file is tracked.
    """
    check_sqlite()
    part = copy.with_name(f"{copy.name}.part")
    with (
        closing(open_existing(path, timeout_seconds, guarded=False)) as writer,
        closing(open_existing(path, timeout_seconds, guarded=False)) as reader,
    ):
        part.unlink(missing_ok=True)
        with closing(sqlite3.connect(part, isolation_level=None)) as target:
            receipt = copy_at_receipt(take_receipt(writer, consumer, None, kept=kept), reader, target)
            target.execute("PRAGMA journal_mode = DELETE")
            write_receipt(open_cursor(target), consumer, receipt)
    part.replace(copy)
    return receipt


@contextmanager
def open_shipped(copy: Path, consumer: str, proof: str | None = None) -> Iterator[Snapshot]:
    """Give a copy that ``ship_copy`` made; nothing is written, and the folder may be read-only.

    Args:
        copy: the copy, which nothing may change meanwhile.
        consumer: the consumer's name.
        proof: the token of the last copy that the consumer has; None for a consumer that begins.
    Raises:
        TrackingArgumentError: there is no such file.
        InvalidOperationError: the copy was not made for this consumer.
        AnchorRewoundError: the device lost the receipt of the proof, or made more copies since than it keeps receipts.
        DamagedFileError: the copy is no database, is cut off, or is inconsistent.
    """
    check_sqlite()
    with closing(open_existing(copy, 0, "mode=ro&immutable=1")) as connection:
        connection.text_factory = decode_text
        _check_whole(connection, copy)
        cursor = open_cursor(connection)
        receipt = read_last_receipt(cursor, consumer)
        prove_receipt(cursor, consumer, proof)
        yield Snapshot(receipt, connection)


def is_read(copy: Path, consumer: str, proof: str) -> bool:
    """Return whether a copy is the last one that a consumer has. False also for a copy that a sync would refuse.

    Args:
        copy: the copy, which nothing may change meanwhile.
        consumer: the consumer's name.
        proof: the token of the last copy that the consumer has.
    Raises:
        TrackingArgumentError: there is no such file.
        sqlite3.DatabaseError: the copy cannot be read.
    """
    with closing(open_existing(copy, 0, "mode=ro&immutable=1")) as connection:
        try:
            return read_last_receipt(open_cursor(connection), consumer).token == proof
        except InvalidOperationError:
            return False


def _check_whole(connection: sqlite3.Connection, copy: Path) -> None:
    """Raise DamagedFileError unless all pages of a copy are there and fit together; a transport may have cut it off."""
    try:
        (found,) = connection.execute("PRAGMA main.integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        # A lock or a missing right is one of the subclasses.
        if type(error) is not sqlite3.DatabaseError:
            raise
        found = str(error)
    if found != "ok":
        raise DamagedFileError(f"{copy} is damaged ({found}): copy it again from the device")
