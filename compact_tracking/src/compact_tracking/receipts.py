"""Receipts: what a consumer's anchor leaves in the file, so that a file from an older copy is noticed.

The transaction of an anchor writes a receipt with a random token, synchronously, and with it all earlier commits. The
consumer keeps the token with its anchors. At the next sync the file must hold a receipt with that token. A file that
was put back to an older copy has lost it, though its numbers may have risen past the anchor again.

The receipt that the consumer proves and the newer ones are kept: the consumer may stop before it stores the new one,
and a read of its that it gave up may still run, and write one after it.
"""

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from compact_tracking.access import open_cursor, write_transaction
from compact_tracking.changes import Anchor, read_anchor
from compact_tracking.enabling import list_tracked
from compact_tracking.enumerations import PurgeType
from compact_tracking.errors import AnchorRewoundError, InvalidOperationError
from compact_tracking.names import NOW
from compact_tracking.numbers import seal_epoch, settle
from compact_tracking.purging import purge_sequence, purge_tombstones
from compact_tracking.schema import is_installed
from compact_tracking.tombstones import pack_tombstones

_EXTRA = 3
_PENDING = 8
"""How many receipts are kept that the consumer has not proven."""


@dataclass(frozen=True)
class Receipt:
    """The end of a window, as it was written into the file."""

    device: str
    """The random text that the file got with its first tracked table; copies of the file have the same."""
    token: str
    """The random text of this receipt: the proof at the next sync."""
    anchor: Anchor
    """The position of the file."""


@contextmanager
def take_receipt(
    connection: sqlite3.Connection,
    consumer: str,
    proof: str | None,
    *,
    kept: int | None = None,
    purge_after_days: int | None = None,
) -> Iterator[Receipt]:
    """Write a receipt for a consumer, and give it before it is committed.

    Other writers wait until the block ends. Then the receipt is durable, with all commits before it: meanwhile,
    synchronous is EXTRA.

    Args:
        connection: a connection to the file, without an open transaction.
        consumer: the consumer's name.
        proof: the token of the consumer's last receipt; None for a consumer that begins.
        kept: how many receipts to keep, where the consumer proves its own later, on a copy; None to have it proven now.
        purge_after_days: purge what no consumer needs once the proof is found, see ``purge_consumed``; None: do not.
    Raises:
        InvalidOperationError: no table of the file is tracked.
        AnchorRewoundError: the file does not hold the receipt of the proof.
    """
    cursor = open_cursor(connection)
    (before,) = cursor.execute("PRAGMA main.synchronous").fetchone()
    cursor.execute(f"PRAGMA main.synchronous = {_EXTRA}")
    try:
        with write_transaction(connection) as writer:
            if not is_installed(writer):
                raise InvalidOperationError("no table of the file is tracked: enable the tracking of one first")
            if kept is None:
                prove_receipt(writer, consumer, proof)
                _drop_superseded(writer, consumer, proof)
                if purge_after_days is not None:
                    purge_consumed(writer, purge_after_days, proof)
            else:
                _drop_oldest(writer, consumer, kept - 1)
            anchor = seal(writer)
            yield _write(writer, consumer, anchor)
    finally:
        cursor.execute(f"PRAGMA main.synchronous = {before}")


def seal(cursor: sqlite3.Cursor) -> Anchor:
    """Return the position of the file after the caller's write transaction made it final for all commits before it."""
    settle(cursor)
    seal_epoch(cursor)
    pack_tombstones(cursor)
    return read_anchor(cursor)


def forget_consumer(cursor: sqlite3.Cursor, consumer: str) -> None:
    """Drop all receipts of a consumer, which then holds back no purge."""
    cursor.execute("DELETE FROM main.__ct_receipts WHERE consumer = ?", (consumer,))


def purge_consumed(cursor: sqlite3.Cursor, days: int, proof: str | None = None) -> int:
    """Purge what no consumer with a receipt of the last days needs, and return the number of rows that were dropped.

    proof: the token of a receipt that is waited for, however old it is.
    """
    floor = _find_purge_floor(cursor, days, proof)
    if floor is None:
        return 0
    tables = [table.table_id for table in list_tracked(cursor)]
    dropped = sum(purge_tombstones(cursor, table, PurgeType.CSN_BASED, floor) for table in tables)
    return dropped + purge_sequence(cursor, PurgeType.CSN_BASED, floor)


def _find_purge_floor(cursor: sqlite3.Cursor, days: int, proof: str | None) -> int | None:
    """Return the lowest CSN from which a consumer of the last days may continue; None without such a consumer."""
    (floor,) = cursor.execute(
        "SELECT min(csn) FROM main.__ct_receipts WHERE written_at >= date('now', ?) OR token = ?",
        (f"-{days} days", proof),
    ).fetchone()
    return None if floor is None else int(floor)


def prove_receipt(cursor: sqlite3.Cursor, consumer: str, proof: str | None) -> None:
    """Raise AnchorRewoundError when the file does not hold the receipt of a consumer's proof."""
    known = "SELECT 1 FROM main.__ct_receipts WHERE consumer = ? AND token = ?"
    if proof is not None and not cursor.execute(known, (consumer, proof)).fetchone():
        raise AnchorRewoundError(
            f"the file has no receipt of the last sync with {consumer!r}: it was put back from an older copy, or"
            " another file has taken its place; load its tables again"
        )


def read_last_receipt(cursor: sqlite3.Cursor, consumer: str) -> Receipt:
    """Return the newest receipt of a consumer.

    Raises:
        InvalidOperationError: the file has none.
    """
    row = (
        is_installed(cursor)
        and cursor.execute(
            "SELECT device, token, csn, bsn FROM main.__ct_receipts, main.__ct_state WHERE consumer = ?"
            " ORDER BY __ct_receipts.rowid DESC LIMIT 1",
            (consumer,),
        ).fetchone()
    )
    if not row:
        raise InvalidOperationError(f"the file has no receipt for {consumer!r}: make the copy with ship_copy")
    device, token, csn, bsn = row
    return Receipt(device, token, Anchor(csn=csn, bsn=bsn))


def write_receipt(cursor: sqlite3.Cursor, consumer: str, receipt: Receipt) -> None:
    """Write a receipt of a consumer into a file."""
    cursor.execute(
        f"INSERT INTO main.__ct_receipts (consumer, token, csn, bsn, written_at) VALUES (?, ?, ?, ?, {NOW})",
        (consumer, receipt.token, receipt.anchor.csn, receipt.anchor.bsn),
    )


def _drop_superseded(cursor: sqlite3.Cursor, consumer: str, proof: str | None) -> None:
    """Drop the receipts before the proven one, and of those after it all but the newest."""
    cursor.execute(
        "DELETE FROM main.__ct_receipts WHERE consumer = :consumer"
        " AND rowid < (SELECT rowid FROM main.__ct_receipts WHERE consumer = :consumer AND token = :proof)",
        {"consumer": consumer, "proof": proof},
    )
    _drop_oldest(cursor, consumer, _PENDING - 1, proof)


def _drop_oldest(cursor: sqlite3.Cursor, consumer: str, kept: int, proof: str | None = None) -> None:
    newest = (
        "SELECT rowid FROM main.__ct_receipts WHERE consumer = :consumer AND token IS NOT :proof"
        " ORDER BY rowid DESC LIMIT :kept"
    )
    cursor.execute(
        "DELETE FROM main.__ct_receipts"
        f" WHERE consumer = :consumer AND token IS NOT :proof AND rowid NOT IN ({newest})",
        {"consumer": consumer, "proof": proof, "kept": kept},
    )


def _write(cursor: sqlite3.Cursor, consumer: str, anchor: Anchor) -> Receipt:
    (device,) = cursor.execute("SELECT device FROM main.__ct_state").fetchone()
    receipt = Receipt(device, str(uuid.uuid4()), anchor)
    write_receipt(cursor, consumer, receipt)
    return receipt
