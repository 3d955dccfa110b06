"""The two counters of a file: BSN, given when a transaction begins, and CSN, given when it commits.

Every function here runs inside a write transaction of its caller. A sequence row is written exactly when the two
numbers of a transaction differ. A transaction that is rolled back, or writes nothing, uses up a BSN and no CSN; from
then on the counters differ, until no transaction is open and both continue from the higher one.
"""

import sqlite3

from compact_tracking.names import NOW
from compact_tracking.processes import identify_process, is_dead

OPEN_DAYS_LIMIT = 2
"""After that many days an open transaction of an unknown process is given up."""


def begin_bsn(cursor: sqlite3.Cursor) -> int:
    """Give the next BSN to a transaction of this process and note it as open."""
    settle(cursor)
    bsn = read_counters(cursor)[0]
    cursor.execute("UPDATE main.__ct_state SET next_bsn = next_bsn + 1")
    cursor.execute(f"INSERT INTO main.__ct_open VALUES (?, ?, {NOW})", (bsn, identify_process()))
    return bsn


def settle(cursor: sqlite3.Cursor) -> None:
    """Bring the counters into order: end what was left behind, and make them equal when no transaction is open."""
    _commit_left_behind(cursor)
    _give_up_dead(cursor)
    cursor.execute(
        "UPDATE main.__ct_state SET next_bsn = max(next_bsn, next_csn), next_csn = max(next_bsn, next_csn)"
        " WHERE next_bsn <> next_csn AND NOT EXISTS (SELECT 1 FROM main.__ct_open)"
    )


def start_writing(cursor: sqlite3.Cursor, bsn: int, context: str | None) -> bool:
    """Make the triggers stamp with a BSN, and seal the epoch; return False when the BSN is no longer open."""
    _commit_left_behind(cursor)
    if not cursor.execute("SELECT 1 FROM main.__ct_open WHERE bsn = ?", (bsn,)).fetchone():
        return False
    cursor.execute("UPDATE main.__ct_state SET tx_bsn = ?, tx_context = ?, epoch_bsn = NULL", (bsn, context))
    return True


def commit_bsn(cursor: sqlite3.Cursor, bsn: int) -> int:
    """Give the next CSN to the transaction that writes under a BSN, and return it."""
    csn = read_counters(cursor)[1]
    cursor.execute("UPDATE main.__ct_state SET next_csn = next_csn + 1, tx_bsn = NULL, tx_context = NULL")
    if csn != bsn:
        cursor.execute(f"INSERT INTO main.__ct_sequence VALUES (?, ?, {NOW})", (bsn, csn))
    end_bsn(cursor, bsn)
    return csn


def end_bsn(cursor: sqlite3.Cursor, bsn: int) -> None:
    """Remove a transaction from those that are open."""
    cursor.execute("DELETE FROM main.__ct_open WHERE bsn = ?", (bsn,))


def seal_epoch(cursor: sqlite3.Cursor) -> None:
    """End the epoch of writes without the library, so that later ones get a higher CSN."""
    cursor.execute("UPDATE main.__ct_state SET epoch_bsn = NULL WHERE epoch_bsn IS NOT NULL")


def read_counters(cursor: sqlite3.Cursor) -> tuple[int, int]:
    """Return the next BSN and the next CSN."""
    bsn, csn = cursor.execute("SELECT next_bsn, next_csn FROM main.__ct_state").fetchone()
    return bsn, csn


def read_low_water(cursor: sqlite3.Cursor) -> int:
    """Return the lowest BSN that is open, or the next one if none is: no later commit has a lower BSN."""
    (bsn,) = cursor.execute(
        "SELECT coalesce((SELECT min(bsn) FROM main.__ct_open), next_bsn) FROM main.__ct_state"
    ).fetchone()
    return int(bsn)


def _commit_left_behind(cursor: sqlite3.Cursor) -> None:
    """Number a transaction that was committed on its connection and not through its Transaction.

    All writes since then carry its BSN. As no anchor was taken in between, one CSN for all of them is exact.
    """
    (bsn,) = cursor.execute("SELECT tx_bsn FROM main.__ct_state").fetchone()
    if bsn is not None:
        commit_bsn(cursor, bsn)


def _give_up_dead(cursor: sqlite3.Cursor) -> None:
    rows = cursor.execute(
        "SELECT bsn, process, begun_at < datetime('now', ?) FROM main.__ct_open", (f"-{OPEN_DAYS_LIMIT} days",)
    ).fetchall()
    for bsn, process, old in rows:
        if old or is_dead(process):
            end_bsn(cursor, bsn)
