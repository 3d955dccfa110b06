"""The history of a table in the ledger, in plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


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
    lag_seconds: float | None = None
    """The age of the window's end when it was published; None where no watermark moved."""
    margin_seconds: float | None = None
    """From the low end of the validity interval to the watermark when the window was opened."""
    change_rows: int | None = None
    """The rows of the change tables, where something measured them."""
    change_bytes: int | None = None
    """The size of the change tables."""
    dag_id: str | None = None
    run_id: str | None = None
    """The last run of Airflow that opened or continued the window; None where the command line did."""


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
class QuarantinedKey:
    """A row that waits in quarantine because it broke a rule, without its values but those of the key."""

    rule: str
    key: tuple[Any, ...]
    """In the order of the key, as JSON has them."""
    lsn: str
    window_id: int
    """The window that read it."""
    at: datetime


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
