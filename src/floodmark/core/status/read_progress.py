"""The progress of reads that take long, of a table and of the step that reads it: the same for logs and terminals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from floodmark.core.schema import TableName
from floodmark.core.status.pace import Pace, describe_seconds


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

    @property
    def seconds_left(self) -> float | None:
        """Return the time for the rows that are left; None where that is not known."""
        rate, left = self.pace.rows_per_second, self.rows_left
        return left / rate if rate and left and not self.is_done else None

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
