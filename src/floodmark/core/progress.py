"""The progress and the pace of a read that takes long, and the lines that report it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import Enum, IntEnum

from floodmark.core.position import Position, format_duration
from floodmark.core.schema import TableName
from floodmark.core.snapshot import SourceSnapshot, Verdict
from floodmark.core.upkeep import ChangeTableSize
from floodmark.core.verdicts import INCIDENTS

# --------------------------------------------------------------------------------------------------------------------
# The pace of a read that takes long: rows a second, and the time that is left.


_MINUTE, _HOUR = 60, 3600
_DAY = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class Pace:
    """The rows that were read since a moment. Rows of an earlier attempt do not count."""

    rows: int
    seconds: float

    @property
    def rows_per_second(self) -> float | None:
        """Return the rate; None before the first row."""
        return self.rows / self.seconds if self.rows > 0 and self.seconds > 0 else None

    def describe(self, rows_left: float | None = None) -> str:
        """Return the rate, and the time for ``rows_left`` at this rate, for the end of a sentence; "" before the first
        row."""
        rate = self.rows_per_second
        if rate is None:
            return ""
        left = f", about {describe_seconds(rows_left / rate)} left" if rows_left else ""
        return f", {rate:,.0f} rows/s{left}"


def describe_seconds(seconds: float) -> str:
    """Return a duration in its largest unit, such as ``45 s``, ``12 min`` or ``3.5 h``."""
    if seconds < _MINUTE:
        return f"{max(1, round(seconds))} s"
    if seconds < _HOUR:
        return f"{round(seconds / _MINUTE)} min"
    return f"{seconds / _HOUR:.1f} h" if seconds < _DAY else f"{seconds / _DAY:.1f} days"


# --------------------------------------------------------------------------------------------------------------------
# The progress of a table: its lag, the time until cleanup passes it, and whether the operator must act.
#
# All times are local time of the source, the clock that commits, cleanup and lag are measured by.


_SHORT_OF_RETENTION = 0.25


class Standing(IntEnum):
    """The condition of a table or a pipeline: the greater, the worse."""

    FINE = 0
    ATTENTION = 1
    """Nothing is lost, and it may resolve itself, but the operator should check it soon."""
    INCIDENT = 2
    """The table gets no new rows until the operator acts."""


@dataclass(frozen=True, slots=True)
class Unread:
    """The messages of a stream that were not read for a table. They may be of other tables."""

    messages: int
    seconds: float | None
    """The age of the oldest commit among them: the table lags by no more. 0 where there is none, None where unknown."""


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """The progress of a source."""

    transactions_behind: Mapping[Position, int]
    """The transactions committed after a watermark, in the whole database, by watermark."""
    retention_minutes: int | None
    """Of the cleanup job; None where there is none or the login may not see it."""
    sizes: tuple[ChangeTableSize, ...] = ()
    """Of the change tables that the login may see."""
    first_unread_at: Mapping[Position, datetime] = field(default_factory=dict)
    """The commit time of the first change after a watermark, or the present time where there is none. Only of sources
    whose log has no entries while they are quiet, so that the age of a watermark shows nothing."""
    unread: Mapping[TableName, Unread] = field(default_factory=dict)
    """Of tables that are read from a stream."""

    def unread_since(self, watermark: Position | None, watermark_at: datetime | None) -> datetime | None:
        """Return since when changes after a watermark may exist, None where it is unknown."""
        return watermark_at if watermark is None else self.first_unread_at.get(watermark, watermark_at)


def lag_seconds(watermark: Position | None, watermark_at: datetime | None, snapshot: SourceSnapshot) -> float | None:
    """Return the age of the watermark; 0 when the source has nothing newer, None without a watermark.

    It is a lower bound where the source's clock was set since.
    """
    if watermark is None or watermark_at is None:
        return None
    if isinstance(snapshot.newest, Position) and snapshot.newest <= watermark:
        return 0.0
    return max((snapshot.taken_at - watermark_at).total_seconds() - snapshot.clock_ahead_seconds, 0.0)


def headroom_seconds(
    watermark_at: datetime | None, taken_at: datetime, retention_minutes: int | None, verdict: Verdict
) -> float | None:
    """Return the time until cleanup may delete changes after the watermark, if that does not move; 0 when it has.

    Cleanup keeps what is younger than the retention, counted from the newest entry of cdc.lsn_time_mapping, which is
    not after ``taken_at``: the true headroom is not smaller. None without a watermark or a known retention.
    """
    if verdict is Verdict.EXPIRED:
        return 0.0
    if watermark_at is None or retention_minutes is None:
        return None
    return max(retention_minutes * 60 - (taken_at - watermark_at).total_seconds(), 0.0)


def judge(
    verdict: Verdict | None,
    lag: float | None,
    headroom: float | None,
    *,
    lag_limit_seconds: float,
    retention_minutes: int | None = None,
    repairs_itself: bool = False,
    waiting_rows: int = 0,
) -> tuple[Standing, str]:
    """Return the standing of a table and the reason, "" where it is fine.

    verdict None: no run has checked the table yet. repairs_itself: the next run begins to reload the table for this
    verdict. waiting_rows: the rows that wait in quarantine.
    """
    is_resolved = verdict is Verdict.REPAIRING or repairs_itself
    is_retried = verdict in INCIDENTS and INCIDENTS[verdict].retryable
    if not is_resolved and not is_retried and (verdict in INCIDENTS or verdict is Verdict.HELD):
        return Standing.INCIDENT, verdict.value
    # A reload does not need the changes that cleanup deletes.
    if not is_resolved and headroom == 0.0:
        return Standing.INCIDENT, "cleanup may have passed the watermark"
    if verdict and (is_resolved or is_retried or verdict in (Verdict.NOT_CAPTURED_YET, Verdict.CAPTURE_LAGGING)):
        return Standing.ATTENTION, verdict.value
    if headroom is not None and retention_minutes and headroom < retention_minutes * 60 * _SHORT_OF_RETENTION:
        return Standing.ATTENTION, f"only {format_duration(headroom)} until cleanup passes the watermark"
    if lag is not None and lag > lag_limit_seconds:
        return Standing.ATTENTION, f"lags by {format_duration(lag)}, more than {format_duration(lag_limit_seconds)}"
    return (Standing.ATTENTION, say_waiting(waiting_rows)) if waiting_rows else (Standing.FINE, "")


def say_waiting(rows: int) -> str:
    """Return how many rows wait in quarantine, as a clause."""
    return f"{rows:,} {'row waits' if rows == 1 else 'rows wait'} in quarantine"


# --------------------------------------------------------------------------------------------------------------------
# The progress of reads that take long, of a table and of the step that reads it: the same for logs and terminals.


class ReadKind(Enum):
    """Why a table is read."""

    FIRST_LOAD = "first load"
    RELOAD = "reload"
    CHANGES = "changes"
    REPLAY = "replay"
    COMPARISON = "comparison"


_MOST_UNFINISHED = 99
_STAGED_AS = {ReadKind.CHANGES: "changes", ReadKind.REPLAY: "the replay"}


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """The progress of the read of one table."""

    table: TableName
    kind: ReadKind
    rows: int
    """Rows so far: in staging, or read for a comparison. Of a finished read: the rows of the source."""
    seconds: float
    """The time since the read began."""
    earlier_rows: int = 0
    """Those of the rows that an earlier attempt read."""
    total_rows: int | None = None
    """About how many rows there are; None where that is not known before they are read."""
    staged_chunks: int = 0
    """Of a first load."""
    chunks: int = 0
    """0: the table is not read in chunks."""
    is_done: bool = False

    @property
    def pace(self) -> Pace:
        """Return the pace of this attempt."""
        return Pace(self.rows - self.earlier_rows, self.seconds)

    @property
    def percent(self) -> int | None:
        """Return the share of the rows, 100 only when all are there; None where the total is not known."""
        if self.is_done or (self.chunks and self.staged_chunks == self.chunks):
            return 100
        if not self.total_rows:
            return None
        return min(100 * self.rows // self.total_rows, _MOST_UNFINISHED)

    @property
    def rows_left(self) -> int | None:
        """Return about how many rows are left; None where that is not known."""
        if self.percent is None or self.total_rows is None:
            return None
        # More rows than expected: it is not known how many will come.
        return max(self.total_rows - self.rows, 0) or None

    def __str__(self) -> str:
        share = "" if self.percent is None else f"{self.percent} %"
        pace = self.pace.describe(self.rows_left)
        if self.kind in _STAGED_AS:
            return f"{self.table}: {self.rows:,} rows of {_STAGED_AS[self.kind]} staged{pace}."
        if self.kind is ReadKind.COMPARISON:
            return f"{self.table}: {share}{share and ', '}{self.rows:,} rows read for the comparison{pace}."
        chunks = f", {self.staged_chunks} of {self.chunks} chunks" if self.chunks else ""
        return f"{self.table}: {self.kind.value}{share and ' '}{share}, {self.rows:,} rows{chunks}{pace}."


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The progress of a step of a command or a load."""

    what: str
    """The subject and what happens to it, such as ``window 7: reading``."""
    seconds: float = 0.0
    """The time since the step began; 0 when it begins."""
    tables: int = 0
    """The tables of the step; 0 where they are not counted."""
    done_tables: int = 0

    def __str__(self) -> str:
        parts = [self.what]
        if self.tables:
            parts.append(f"{self.done_tables} of {self.tables} tables done")
        if self.seconds:
            parts.append(describe_seconds(self.seconds))
        return ", ".join(parts)


# --------------------------------------------------------------------------------------------------------------------
# The lines by which a load job reports its progress to the process that started it. They contain no value of a row.


PROGRESS_PREFIX = "FLOODMARK_PROGRESS "


def format_progress_line(progress: ReadProgress | StepProgress) -> str:
    """Return one line, without the newline."""
    if isinstance(progress, StepProgress):
        return PROGRESS_PREFIX + json.dumps({"step": asdict(progress)})
    return PROGRESS_PREFIX + json.dumps({"read": asdict(progress) | {"kind": progress.kind.value}})


def parse_progress_line(line: str) -> ReadProgress | StepProgress | None:
    """Return the progress in a line of output, None for any other line.

    A line that begins like one and is not one is like any other: it is not worth the load.
    """
    if not line.startswith(PROGRESS_PREFIX):
        return None
    try:
        document = json.loads(line.removeprefix(PROGRESS_PREFIX))
        if "step" in document:
            return StepProgress(**document["step"])
        found = document["read"]
        return ReadProgress(**found | {"table": TableName(**found["table"]), "kind": ReadKind(found["kind"])})
    except (ValueError, TypeError, KeyError):
        return None
