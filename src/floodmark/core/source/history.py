"""Proof that the source's log is not the one that was read, but that of a restored backup or a stale copy.

A log that only grows, and is cleaned up from below, keeps the time of each of its entries. So a position whose entry
was found once, with its commit time, is a proof in every later snapshot: the entry exists, with that time. If it does
not, the log was taken back to before that position and written on, even where its newest LSN is above the position
again. Below it are now other transactions than those that were read.

These are no proof, and without a proof nothing is reported (ADR 32):

* An entry that is missing at or below the low end: cleanup deletes entries below the lowest low end of all instances.
  So a missing entry counts only above the table's own low end, which is not lower than that, and which must have been
  read after the entry: cleanup raises the low ends first.
* A missing entry of a position of which no time is known: there may never have been one.
* Missing times where the login may see none at all: then that of the newest LSN is missing too.
* Times that differ by no more than ticks of ``datetime``, which drivers round differently. A transaction that took the
  position of another one after a restore is younger by more than that.

A clock that is set back, summer time and moves to other zones do not change existing entries: a time is only compared
with an earlier time of the same entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from floodmark.core.lsn import LsnAbsence
from floodmark.core.position import Position
from floodmark.core.source.snapshot import SourceSnapshot

_ROUNDING = timedelta(milliseconds=10)
"""A datetime counts in 1/300 s."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of ``cdc.lsn_time_mapping``."""

    lsn: Position
    committed_at: datetime | None
    """The commit time, local time of the source; None where it is not known."""


def same_time(first: datetime, second: datetime) -> bool:
    """Return whether two values of ``datetime`` are the same moment at the source, however drivers rounded them."""
    return abs(first - second) < _ROUNDING


def explain_other_copy(needed: LogEntry, max_lsn: Position | LsnAbsence, found_at: datetime | None) -> str | None:
    """Return a sentence on why rows up to ``needed`` cannot be read where the source answered this; None if they can.

    max_lsn: the newest LSN there. found_at: the commit time that the log has there for exactly ``needed.lsn``.
    """
    if not isinstance(max_lsn, Position) or max_lsn < needed.lsn:
        newest = max_lsn if isinstance(max_lsn, Position) else "none"
        noun = needed.lsn.noun
        return (
            f"this copy of the database is behind: its newest {noun} is {newest}, and the window ends at {needed.lsn}."
        )
    if needed.committed_at is None or (found_at is not None and same_time(found_at, needed.committed_at)):
        return None
    found = f"an entry of {found_at}" if found_at else "no entry"
    return (
        f"this copy of the database has another log: at {needed.lsn}, where the window ends, it has {found}, and not "
        f"that of {needed.committed_at}."
    )


def explain_rewind(
    position: Position, committed_at: datetime | None, low_end: Position, snapshot: SourceSnapshot
) -> str | None:
    """Return a sentence that proves that the log was taken back and written on, None without a proof.

    committed_at: the commit time that the source gave for ``position`` when it was its newest LSN. low_end: of the
    table's instance.
    """
    if committed_at is None or position not in snapshot.entries:
        return None
    found_at = snapshot.entries[position]
    if found_at is None:
        if position <= low_end or snapshot.max_lsn_at is None:
            return None
        now = f"now has nothing there, and reaches from {low_end} to {snapshot.max_lsn} ({snapshot.max_lsn_at})"
    elif same_time(found_at, committed_at):
        return None
    else:
        now = f"now has another one there, committed at {found_at}"
    grown = isinstance(snapshot.max_lsn, Position) and snapshot.max_lsn >= position
    state = "an older state and has written on since" if grown else "an older state"
    return (
        f"the source has been restored, or failed over, to {state}: at {position}, which was examined, its log had a "
        f"transaction committed at {committed_at}, and {now}."
    )
