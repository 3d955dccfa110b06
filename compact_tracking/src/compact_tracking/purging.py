"""Purges of tombstones and of the commit sequence, with a floor that makes expired anchors visible.

A purge raises the floor of what it touches: an anchor below it is refused as expired, never answered incompletely. A
row of the sequence table is dropped only when its BSN and its CSN are both below the limit: rows of user tables keep
the BSN, which then is read as its own CSN. All functions run inside a write transaction of the caller.
"""

import sqlite3

from compact_tracking.enumerations import PurgeType
from compact_tracking.errors import InvalidOperationError, TrackingRangeError
from compact_tracking.names import resolve_csn
from compact_tracking.numbers import read_counters

_DELETED = resolve_csn("t.delete_bsn")
_SETTLED = "t.delete_bsn IS NOT (SELECT tx_bsn FROM main.__ct_state)"


def check_purge(purge_type: PurgeType, value: int) -> PurgeType:
    """Return the type of a purge whose arguments are in range.

    Raises:
        TrackingRangeError: the type is NONE or unknown, or the value is negative.
    """
    if purge_type not in (PurgeType.TIME_BASED, PurgeType.CSN_BASED):
        raise TrackingRangeError(f"{purge_type!r} is no measure of a purge: use TIME_BASED or CSN_BASED")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TrackingRangeError(f"a purge needs a whole number of at least 0, not {value!r}")
    return PurgeType(purge_type)


def purge_tombstones(cursor: sqlite3.Cursor, table_id: int, purge_type: PurgeType, value: int) -> int:
    """Delete old tombstones of a table and return how many: by days, or with a CSN below the value."""
    old, limit = _limit(cursor, purge_type, value, "t.deleted_at", _DELETED)
    rows = cursor.execute(
        f"SELECT t.id, {_DELETED} FROM main.__ct_tombstones AS t WHERE t.table_id = ? AND {old} AND {_SETTLED}",
        (table_id, limit),
    ).fetchall()
    cursor.executemany("DELETE FROM main.__ct_tombstones WHERE id = ?", [(row,) for row, _ in rows])
    floor = limit if isinstance(limit, int) else max((csn + 1 for _, csn in rows), default=0)
    cursor.execute("UPDATE main.__ct_tables SET purged_below = max(purged_below, ?) WHERE id = ?", (floor, table_id))
    return len(rows)


def purge_sequence(cursor: sqlite3.Cursor, purge_type: PurgeType, value: int) -> int:
    """Delete old rows of the sequence table and return how many: by days, or with BSN and CSN below the value.

    Raises:
        InvalidOperationError: tombstones of such transactions are still there.
    """
    old, limit = _limit(cursor, purge_type, value, "q.committed_at", "max(q.bsn, q.csn)")
    next_csn = read_counters(cursor)[1]
    rows = cursor.execute(
        f"SELECT q.bsn, max(q.bsn, q.csn) FROM main.__ct_sequence AS q WHERE {old} AND max(q.bsn, q.csn) < ?",
        (limit, next_csn),
    ).fetchall()
    floor = limit if isinstance(limit, int) else max((high + 1 for _, high in rows), default=0)
    remains = f"SELECT 1 FROM main.__ct_tombstones AS t WHERE {_DELETED} < ? AND {_SETTLED} LIMIT 1"
    if cursor.execute(remains, (floor,)).fetchone():
        raise InvalidOperationError(
            f"tombstones of transactions with a CSN below {floor} are still there: purge the tombstones first"
        )
    cursor.executemany("DELETE FROM main.__ct_sequence WHERE bsn = ?", [(bsn,) for bsn, _ in rows])
    cursor.execute("UPDATE main.__ct_state SET sequence_purged_below = max(sequence_purged_below, ?)", (floor,))
    return len(rows)


def _limit(cursor: sqlite3.Cursor, purge_type: PurgeType, value: int, time: str, csn: str) -> tuple[str, int | str]:
    """Return a condition with one parameter, and the parameter: a CSN, or the first day that is kept."""
    if purge_type is PurgeType.CSN_BASED:
        return f"{csn} < ?", min(value, read_counters(cursor)[1])
    (day,) = cursor.execute("SELECT date('now', ?)", (f"-{value} days",)).fetchone()
    if day is None:
        raise TrackingRangeError(f"{value} days ago is before the first year that SQLite knows")
    return f"date({time}) < ?", day
