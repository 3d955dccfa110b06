"""The retention of a source, compared with the progress of its readers: forecast and decision.

Cleanup deletes what is older than the newest entry of ``cdc.lsn_time_mapping`` by more than the retention. A watermark
is lost when that line passes it; the line moves as the log moves, and the watermark at the pace of its pipeline. As for
the capture job, each run compares the current state with the wanted one, so that nothing is remembered between runs: a
retention above ``keep`` is one that was raised. Times are the source's local time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from math import ceil

from floodmark.core.durations import format_duration
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.upkeep.change_table import ChangeTableSize

HOLD_MINUTES = 52_494_800
"""The longest retention that every server accepts, a hundred years: with it, cleanup finds nothing to delete."""
ENDLESS_SECONDS = HOLD_MINUTES * 60 / 2
"""A headroom beyond this counts as endless: cleanup is held."""
PACE_SECONDS = 6 * 3600.0
"""The period over which the pace of a watermark is measured."""
_LEAST_LOSS = 0.1
"""A pace is never trusted completely: a watermark that keeps up may stop in the next hour."""
_RESTORED = 1.25
"""The factor above the limit at which a retention is restored; without it, it would alternate."""
_SHOWN_IN_DAYS = 3 * 1440
_STEPS = 4
"""The steps per ``keep``: a retention is raised by quarters of it, so that it is not changed in every run."""


class OnLow(Enum):
    """The action, in addition to the alert, when the headroom is short."""

    ALERT = "alert"
    """Nothing else."""
    RAISE_RETENTION = "raise_retention"
    """The retention is raised by quarters of ``keep``, up to ``ceiling``, and restored later."""
    HOLD_CLEANUP = "hold_cleanup"
    """The retention is set to a hundred years meanwhile, so that cleanup finds nothing."""


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """The wanted retention of a source."""

    keep_minutes: int | None = None
    """The wanted retention; None: it is not changed."""
    ceiling_minutes: int = 20_160
    """How far it may be raised."""
    headroom_limit_seconds: float = 86_400.0
    """A headroom below this is short."""
    on_low: OnLow = OnLow.ALERT
    threshold: int | None = None
    """The rows that one statement of cleanup deletes; None: it is not changed."""
    margin_seconds: float | None = None
    """How far behind the slowest watermark changes are cleaned up; None: not at all."""
    change_table_limit_bytes: int | None = None
    """How large a change table may be before an alert is raised; None for any size."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The watermark of one table of a pipeline, or the position where a load of it has begun."""

    pipeline: str
    table: TableName
    instance: str
    """"" while none is known."""
    lsn: Position
    at: datetime | None
    """Its commit time; None where the ledger has none: an imported position may be between two entries of the log."""
    pace: float = 0.0
    """The seconds of the source's time that it advances per second; 0 when it does not move or its pace is unknown."""

    def __str__(self) -> str:
        return f"{self.table} in pipeline {self.pipeline}"


@dataclass(frozen=True, slots=True)
class RetentionStatus:
    """The cleanup job and the change tables at one moment."""

    retention_minutes: int | None
    """Of the cleanup job; None where there is none."""
    threshold: int | None
    """Of the cleanup job; None where there is none."""
    newest_entry_at: datetime | None
    """Of cdc.lsn_time_mapping; None while that is empty."""
    sizes: tuple[ChangeTableSize, ...] = ()
    is_replica: bool = False
    """Its cleanup is a job of another server."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast for the mark that is lost first."""

    mark: Mark
    headroom_seconds: float
    """If it does not move."""
    forecast_seconds: float
    """At its pace."""

    @property
    def is_endless(self) -> bool:
        """Return whether changes are kept so long that cleanup practically never passes the mark."""
        return self.headroom_seconds > ENDLESS_SECONDS

    def __str__(self) -> str:
        if self.is_endless:
            return f"cleanup does not pass the watermark of {self.mark}, as changes are kept forever"
        return f"cleanup passes the watermark of {self.mark} in {self.left}"

    @property
    def left(self) -> str:
        """Return the time until then, as text."""
        if_still = format_duration(self.headroom_seconds)
        return f"{format_duration(self.forecast_seconds)} at its pace ({if_still} if it does not move)"


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """The action of a run that brings the cleanup job to the state that is wanted now."""

    forecast: Forecast | None
    """With the retention that is in effect after this step."""
    usual: Forecast | None
    """With the usual retention."""
    reason: str
    """One plain sentence."""
    retention_minutes: int | None = None
    """The retention to set; None where it is right."""
    threshold: int | None = None
    """The threshold to set; None where it is right."""
    low: bool = False
    """Whether the headroom is short with the usual retention, or has not been restored."""
    exhausted: bool = False
    """Whether the headroom is short whatever the policy does."""


def pace_of(mark_at: datetime, reference_at: datetime | None, elapsed_seconds: float | None) -> float:
    """Return the pace of a watermark from its position ``elapsed_seconds`` ago.

    reference_at None: nothing is known, and it counts as not moving.
    """
    if reference_at is None or not elapsed_seconds or elapsed_seconds <= 0:
        return 0.0
    return max((mark_at - reference_at).total_seconds() / elapsed_seconds, 0.0)


def forecast_loss(marks: Sequence[Mark], newest_entry_at: datetime | None, retention_minutes: int) -> Forecast | None:
    """Return the forecast for the mark that is lost first, None where there is nothing to lose."""
    if newest_entry_at is None:
        return None
    found = [_forecast(mark, newest_entry_at, retention_minutes) for mark in marks]
    return min(found, key=lambda each: (each.forecast_seconds, str(each.mark)), default=None)


def decide_retention(status: RetentionStatus, settings: RetentionSettings, marks: Sequence[Mark]) -> RetentionStep:
    """Return what a run does to the cleanup job.

    The job must exist: ``retention_minutes`` is known.
    """
    current = status.retention_minutes
    assert current is not None  # noqa: S101  (ensured by keep_retention)
    keep = settings.keep_minutes or current
    newest = status.newest_entry_at
    needed = _needed_minutes(marks, newest, settings.headroom_limit_seconds)
    restored = _needed_minutes(marks, newest, settings.headroom_limit_seconds * _RESTORED) <= keep
    wanted, reason = _wanted(settings, current, keep, needed, restored=restored)
    threshold = settings.threshold if settings.threshold not in (None, status.threshold) else None
    return RetentionStep(
        forecast=forecast_loss(marks, newest, wanted),
        usual=forecast_loss(marks, newest, keep),
        reason=reason,
        retention_minutes=wanted if wanted != current else None,
        threshold=threshold,
        low=needed > keep or wanted > keep,
        exhausted=needed > wanted and settings.on_low is not OnLow.ALERT,
    )


def _wanted(settings: RetentionSettings, current: int, keep: int, needed: int, *, restored: bool) -> tuple[int, str]:
    if settings.keep_minutes is None:
        return current, f"the retention is {_kept(current)} and is not changed."
    if needed > keep and settings.on_low is OnLow.HOLD_CLEANUP:
        return HOLD_MINUTES, "cleanup is held, because it would soon pass a watermark."
    if needed > keep and settings.on_low is OnLow.RAISE_RETENTION:
        ceiling = max(settings.ceiling_minutes, keep)
        wanted = max(min(_in_steps(needed, keep), ceiling), current)
        # A retention is not lowered before the headroom is restored, unless it is beyond the ceiling and no watermark
        # needs it: the operator may have set it because the ceiling is not enough.
        if current > ceiling >= needed:
            wanted = ceiling
        return wanted, f"the retention is {_kept(wanted)}, so that cleanup does not pass a watermark."
    if current > keep and not restored:
        return current, f"the retention stays {_kept(current)} until the headroom is restored."
    return keep, f"the retention is {_kept(keep)}, as configured."


def _needed_minutes(marks: Sequence[Mark], newest_entry_at: datetime | None, limit_seconds: float) -> int:
    """Return the retention with which every mark has the headroom."""
    if newest_entry_at is None:
        return 0
    seconds = [_behind_seconds(mark, newest_entry_at) + limit_seconds * _loss(mark) for mark in marks]
    return ceil(max(seconds, default=0.0) / 60)


def _forecast(mark: Mark, newest_entry_at: datetime, retention_minutes: int) -> Forecast:
    headroom = max(retention_minutes * 60 - _behind_seconds(mark, newest_entry_at), 0.0)
    return Forecast(mark, headroom, headroom / _loss(mark))


def _behind_seconds(mark: Mark, newest_entry_at: datetime) -> float:
    assert mark.at is not None  # noqa: S101  (ensured by keep_retention, where the log has an entry)
    return (newest_entry_at - mark.at).total_seconds()


def _loss(mark: Mark) -> float:
    """Return by how much the headroom shrinks per second."""
    return max(1.0 - mark.pace, _LEAST_LOSS)


def _in_steps(needed: int, keep: int) -> int:
    step = max(keep // _STEPS, 60)
    return keep + ceil((needed - keep) / step) * step


def _kept(minutes: int) -> str:
    if minutes >= HOLD_MINUTES:
        return "unlimited"
    return f"{minutes / 60:.4g} h" if minutes < _SHOWN_IN_DAYS else f"{minutes / 1440:.4g} days"
