"""The lag of each table of a pipeline, its headroom, and the space of its changes at the source.

Alerts and metrics use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import SourceSnapshot, Verdict
from floodmark.core.status.progress import SourceProgress, headroom_seconds, lag_seconds
from floodmark.core.upkeep.change_table import table_sizes

_NOTHING_COMES = (Verdict.CAPTURE_STOPPED, Verdict.CAPTURE_LAGGING)


@dataclass(frozen=True, slots=True)
class TableMark:
    """The ledger's state of a table."""

    table: TableName
    watermark: Position | None
    watermark_at: datetime | None
    """Local time of the source."""
    verdict: Verdict | None
    """Of the last run."""


@dataclass(frozen=True, slots=True)
class TableMeasure:
    """The measures of a table. None: unknown, without a watermark or because the login may not see it."""

    table: TableName
    lag_seconds: float | None
    """The age of the watermark by the source's clock; 0 when the source has nothing newer. Sent also where a task of
    the run failed, unless the source cannot be queried."""
    headroom_seconds: float | None
    """The time until cleanup may pass the watermark, if that does not move. Unknown where the login may not see the
    retention."""
    change_rows: int | None = None
    """The rows in the change tables of all its capture instances. Unknown where the login may not read them."""
    change_bytes: int | None = None
    """The size of these change tables at the source, indexes and large values included. Unknown as well."""
    unread_messages: int | None = None
    """The messages of an event stream that were not read for the table, those of other tables included."""


def measure_tables(
    marks: Sequence[TableMark], snapshot: SourceSnapshot, progress: SourceProgress
) -> tuple[TableMeasure, ...]:
    """Return the measures of each table.

    Where capture delivers nothing, the age of the watermark is the lag: that the source has nothing newer does not
    prove then that the target has everything.
    """
    measures = []
    sizes = table_sizes([mark.table for mark in marks], progress.sizes)
    for each in marks:
        mark = replace(each, watermark_at=progress.unread_since(each.watermark, each.watermark_at))
        unread = progress.unread.get(mark.table)
        measures.append(
            TableMeasure(
                mark.table,
                unread.seconds if unread else lag_of(mark, snapshot),
                _headroom(mark, snapshot, progress.retention_minutes),
                *sizes.get(mark.table, (None, None)),
                unread.messages if unread else None,
            )
        )
    return tuple(measures)


def lag_of(mark: TableMark, snapshot: SourceSnapshot) -> float | None:
    """Return the lag of a table in seconds, None where it is unknown."""
    if mark.verdict in _NOTHING_COMES and mark.watermark_at is not None:
        age = (snapshot.taken_at - mark.watermark_at).total_seconds()
        return max(age - snapshot.clock_ahead_seconds, 0.0)
    return lag_seconds(mark.watermark, mark.watermark_at, snapshot)


def _headroom(mark: TableMark, snapshot: SourceSnapshot, retention_minutes: int | None) -> float | None:
    if mark.verdict is None:
        return None
    return headroom_seconds(mark.watermark_at, snapshot.taken_at, retention_minutes, mark.verdict)
