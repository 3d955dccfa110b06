"""The results of a published window."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.window.plan import LoadKind, TableCounts


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a published window, for logs and notifications."""

    source: TableName
    target: TableName
    kind: LoadKind
    after_lsn: Position | None
    """None: a first load."""
    to_lsn: Position
    counts: TableCounts

    @property
    def has_rows(self) -> bool:
        """Whether the window brought rows of the table, or loaded all of it."""
        return self.kind is LoadKind.FIRST_LOAD or self.counts.read_rows > 0


@dataclass(frozen=True, slots=True)
class AdvanceResult:
    """The result of advancing a window."""

    window_id: int
    pipeline: str
    to_lsn: Position
    tables: tuple[PublishedTable, ...]
    is_replay: bool = False
    """Whether the window was a replay: no watermark moved."""
