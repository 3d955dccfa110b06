"""How late each table of a pipeline is, how long it may stay so, and what room its changes take at the source.

For alerts and metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import SourceSnapshot, Verdict
from floodmark.core.status.progress import SourceProgress, headroom_seconds, lag_seconds
from floodmark.core.upkeep.change_table import sizes_of, total

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
    """None is what cannot be known: without a watermark, or where the login may not see the retention, or the change
    tables. change_rows, change_bytes: of all its capture instances."""

    table: TableName
    lag_seconds: float | None
    headroom_seconds: float | None
    change_rows: int | None = None
    change_bytes: int | None = None


def measure_tables(
    marks: Sequence[TableMark], snapshot: SourceSnapshot, progress: SourceProgress
) -> tuple[TableMeasure, ...]:  # fmt: skip
    """One each. Where capture brings nothing, the age of the watermark is the lag: that the source has nothing newer
    is then no proof that the target has everything."""
    measures = []
    for mark in marks:
        sizes = sizes_of(mark.table, progress.sizes)
        measures.append(
            TableMeasure(
                mark.table, lag_of(mark, snapshot), _headroom(mark, snapshot, progress.retention_minutes),
                total([size.rows for size in sizes]), total([size.size_bytes for size in sizes]),
            )
        )  # fmt: skip
    return tuple(measures)


def lag_of(mark: TableMark, snapshot: SourceSnapshot) -> float | None:
    if mark.verdict in _NOTHING_COMES and mark.watermark_at is not None:
        age = (snapshot.taken_at - mark.watermark_at).total_seconds()
        return max(age - snapshot.clock_ahead_seconds, 0.0)
    return lag_seconds(mark.watermark, mark.watermark_at, snapshot)


def _headroom(mark: TableMark, snapshot: SourceSnapshot, retention_minutes: int | None) -> float | None:
    if mark.verdict is None:
        return None
    return headroom_seconds(mark.watermark_at, snapshot.taken_at, retention_minutes, mark.verdict)
