"""The history of a table in the ledger, in plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TableWindow:
    """A window with the table in it. Times are UTC, None for steps that have not ended."""

    window_id: int
    lane: str
    """Empty for the windows that follow the log."""
    kind: str
    """How the table was read, such as first_load or changes."""
    state: str
    attempt: int
    opened_at: datetime
    merged_at: datetime | None
    checked_at: datetime | None
    advanced_at: datetime | None
    to_lsn_at: datetime | None
    """The commit time of the window's end, local time of the source."""
    read_rows: int
    inserted_rows: int
    updated_rows: int
    deleted_rows: int
    unchanged_rows: int
    quarantined_rows: int


@dataclass(frozen=True, slots=True)
class TableGap:
    """A stretch of the log whose changes could not be read. repaired_at: None while it is open."""

    verdict: str
    cause: str
    found_at: datetime
    repaired_at: datetime | None


@dataclass(frozen=True, slots=True)
class RuleCount:
    """The rows of a table that wait in quarantine because they broke a rule."""

    table: str
    rule: str
    rows: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class DriftNote:
    """A difference between the shapes of a table, found at the source."""

    event_id: int
    found_at: datetime
    what: str
    decision: str
    """undecided, approved by NAME, or rejected."""
    proposal: str


@dataclass(frozen=True, slots=True)
class TableHistory:
    """windows: the last ones, the oldest first. The others: the newest first."""

    windows: tuple[TableWindow, ...] = ()
    gaps: tuple[TableGap, ...] = ()
    quarantine: tuple[RuleCount, ...] = ()
    drift: tuple[DriftNote, ...] = ()
