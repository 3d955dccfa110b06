"""How late each table of a pipeline is, and how long it may stay so, for alerts and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.capture import SourceSnapshot, Verdict
from floodmark.core.lsn import Lsn
from floodmark.core.progress import headroom_seconds, lag_seconds
from floodmark.core.schema import TableName

_NOTHING_COMES = (Verdict.CAPTURE_STOPPED, Verdict.CAPTURE_LAGGING)


@dataclass(frozen=True, slots=True)
class TableMark:
    """What the ledger knows of a table. watermark_at: local time of the source. verdict: of the last run."""

    table: TableName
    watermark: Lsn | None
    watermark_at: datetime | None
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class TableMeasure:
    """None is what cannot be known: without a watermark, or where the login may not see the retention."""

    table: TableName
    lag_seconds: float | None
    headroom_seconds: float | None


def measure_tables(
    marks: Sequence[TableMark], snapshot: SourceSnapshot, retention_minutes: int | None
) -> tuple[TableMeasure, ...]:  # fmt: skip
    """One each. Where capture brings nothing, the age of the watermark is the lag: that the source has nothing newer
    is then no proof that the target has everything."""
    return tuple(
        TableMeasure(mark.table, lag_of(mark, snapshot), _headroom(mark, snapshot, retention_minutes)) for mark in marks
    )


def lag_of(mark: TableMark, snapshot: SourceSnapshot) -> float | None:
    if mark.verdict in _NOTHING_COMES and mark.watermark_at is not None:
        return max((snapshot.taken_at - mark.watermark_at).total_seconds(), 0.0)
    return lag_seconds(mark.watermark, mark.watermark_at, snapshot)


def _headroom(mark: TableMark, snapshot: SourceSnapshot, retention_minutes: int | None) -> float | None:
    if mark.verdict is None:
        return None
    return headroom_seconds(mark.watermark_at, snapshot.taken_at, retention_minutes, mark.verdict)
