"""Whether the source's log still is the one that was read, and not that of a restored backup or a copy that was behind.

A log that only grows, and is cleaned up from below, keeps the time of each of its entries. So a position whose entry
was seen, with its commit time, is a proof on every later look: the entry is there, with that time. If it is not, the
log was taken back to before that position and written on, even where its newest LSN is above the position again. What
lies below it now are other transactions than those that were read.

What is no proof, so that nothing is ever said without one (ADR 32):

* An entry that is missing at or below the low end: cleanup takes entries away below the lowest low end of all
  instances. So a missing entry counts only above the table's own low end, which is not lower than that, and which must
  have been asked for after the entry: cleanup raises the low ends first.
* A missing entry of a position of which no time is known: there may never have been one.
* Missing times where the login is told none at all: then that of the newest LSN is missing too.
* Times that differ by no more than ticks of ``datetime``, which drivers round differently. A transaction that took the
  position of another one after a restore is younger by more than that.

A clock that is set back, summer time and moves to other zones change no entry that is there: a time is only compared
with what the same entry had.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from floodmark.core.lsn import Lsn
from floodmark.core.source.snapshot import SourceSnapshot

_ROUNDING = timedelta(milliseconds=10)
"""datetime counts in 1/300 s."""


def explain_rewind(position: Lsn, committed_at: datetime | None, low_end: Lsn, snapshot: SourceSnapshot) -> str | None:
    """What shows that the log was taken back and written on, as a sentence; None where nothing does.

    committed_at: what the source gave for ``position`` when it was its newest LSN. low_end: of the table's instance.
    """
    if committed_at is None or position not in snapshot.entries:
        return None
    found_at = snapshot.entries[position]
    if found_at is None:
        if position <= low_end or snapshot.max_lsn_at is None:
            return None
        now = f"has nothing there now, and reaches from {low_end} to {snapshot.max_lsn} ({snapshot.max_lsn_at})"
    elif abs(found_at - committed_at) < _ROUNDING:
        return None
    else:
        now = f"has another one there now, committed at {found_at}"
    grown = isinstance(snapshot.max_lsn, Lsn) and snapshot.max_lsn >= position
    state = "an older state and has written on since" if grown else "an older state"
    return (
        f"the source has been restored, or failed over, to {state}: at {position}, which was examined, its log had a "
        f"transaction committed at {committed_at}, and {now}."
    )
