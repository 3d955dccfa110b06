"""The positions of changes in an event stream: the commit LSN, and behind it the place in the transaction.

A window of a stream may end inside a transaction, even between two changes of one row. With the place, a change that
arrives late, again or in another order never wins over a newer one. The positions of windows are moments, as those of
a fleet (ADR 65): they are never compared with the positions of changes.
"""

from __future__ import annotations

from floodmark.core.position import POSITION_BYTES

_SEQUENCE_BYTES = 4
HIGHEST_SEQUENCE = (1 << 8 * _SEQUENCE_BYTES) - 1
LOWEST = bytes(POSITION_BYTES - 1) + b"\1" + bytes(_SEQUENCE_BYTES)
"""Below every change."""


def change_position(commit_lsn: bytes, sequence: int) -> bytes:
    """Return the position of a change. Raises OverflowError for a place beyond four bytes.

    commit_lsn: ten bytes. sequence: the place of the change in its transaction.
    """
    return commit_lsn + sequence.to_bytes(_SEQUENCE_BYTES)


def end_of_commit(commit_lsn: bytes) -> bytes:
    """Return the position of the last change that a transaction may have."""
    return change_position(commit_lsn, HIGHEST_SEQUENCE)
