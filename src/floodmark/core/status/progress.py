"""The progress of a table: its lag, the time until cleanup passes it, and whether the operator must act.

All times are local time of the source, the clock that commits, cleanup and lag are measured by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

from floodmark.core.durations import format_duration
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import SourceSnapshot, Verdict
from floodmark.core.source.verdicts import INCIDENTS
from floodmark.core.upkeep.change_table import ChangeTableSize

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
    if isinstance(snapshot.max_lsn, Position) and snapshot.max_lsn <= watermark:
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
) -> tuple[Standing, str]:
    """Return the standing of a table and the reason, "" where it is fine.

    verdict None: no run has checked the table yet. repairs_itself: the next run begins to reload the table for this
    verdict.
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
    return Standing.FINE, ""
