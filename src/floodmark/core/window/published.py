"""What a published window did."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.window.plan import LoadKind, TableCounts


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a finished window, for who tells the world. after_lsn None: a first load."""

    source: TableName
    target: TableName
    kind: LoadKind
    after_lsn: Lsn | None
    to_lsn: Lsn
    counts: TableCounts


@dataclass(frozen=True, slots=True)
class AdvanceResult:
    """is_replay: no watermark moved."""

    window_id: int
    pipeline: str
    to_lsn: Lsn
    tables: tuple[PublishedTable, ...]
    is_replay: bool = False
