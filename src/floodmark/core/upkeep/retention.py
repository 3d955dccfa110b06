"""How long a source keeps its changes, against how far its readers are: the forecast, and what a run does about it.

Cleanup deletes what is older than the newest entry of ``cdc.lsn_time_mapping`` by more than the retention. A watermark
is lost when that line passes it; the line moves as the log moves, and the watermark at the pace of its pipeline. As for
the capture job, each run compares what is with what ought to be for now, so that nothing is remembered between runs: a
retention above ``keep`` is one that was raised. Times are the source's local time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from math import ceil

from floodmark.core.durations import format_duration
from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.upkeep.change_table import ChangeTableSize

HOLD_MINUTES = 52_494_800
"""The longest retention that every server takes, a hundred years: with it cleanup finds nothing to delete."""
ENDLESS_SECONDS = HOLD_MINUTES * 60 / 2
"""A headroom beyond this is none that somebody will see the end of: cleanup is held."""
PACE_SECONDS = 6 * 3600.0
"""Over how long the pace of a watermark is taken."""
_LEAST_LOSS = 0.1
"""A pace is never trusted wholly: a watermark that keeps up may stand still in the next hour."""
_RESTORED = 1.25
"""So much more than the limit before a retention is given back; without it, it would go up and down."""
_SHOWN_IN_DAYS = 3 * 1440
_STEPS = 4
"""Of ``keep``: a retention is raised by quarters of it, so that it is not changed in every run."""


class OnLow(Enum):
    """What is done, beside the alert, when the headroom is short."""

    ALERT = "alert"
    RAISE_RETENTION = "raise_retention"
    HOLD_CLEANUP = "hold_cleanup"


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """keep_minutes: the retention that is wanted, None to leave it as it is. ceiling_minutes: how far it is raised.

    headroom_limit_seconds: less than this is short. threshold: rows that one statement of cleanup deletes, None to
    leave it as it is. margin_seconds: how far behind the slowest watermark changes are cleaned up, None not to.
    change_table_limit_bytes: how large a change table may be before somebody is told, None for any size.
    """

    keep_minutes: int | None = None
    ceiling_minutes: int = 20_160
    headroom_limit_seconds: float = 86_400.0
    on_low: OnLow = OnLow.ALERT
    threshold: int | None = None
    margin_seconds: float | None = None
    change_table_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """The watermark of one table of a pipeline, or where a load of it has begun. instance: "" while none is known.

    pace: seconds of the source's time that it advances in a second, 0 when it stands still or nothing is known of it.
    """

    pipeline: str
    table: TableName
    instance: str
    lsn: Lsn
    at: datetime
    pace: float = 0.0

    def __str__(self) -> str:
        return f"{self.table} in pipeline {self.pipeline}"


@dataclass(frozen=True, slots=True)
class RetentionStatus:
    """One look at the source. retention_minutes, threshold: of the cleanup job, None where there is none.

    newest_entry_at: of cdc.lsn_time_mapping, None while that is empty. is_replica: its cleanup is another server's.
    """

    retention_minutes: int | None
    threshold: int | None
    newest_entry_at: datetime | None
    sizes: tuple[ChangeTableSize, ...] = ()
    is_replica: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of the mark that is lost first. headroom_seconds: if it stood still; forecast_seconds: at its pace."""

    mark: Mark
    headroom_seconds: float
    forecast_seconds: float

    @property
    def is_endless(self) -> bool:
        """Whether changes are kept for so long that cleanup passes nothing that somebody will see."""
        return self.headroom_seconds > ENDLESS_SECONDS

    def __str__(self) -> str:
        if self.is_endless:
            return f"cleanup does not pass the watermark of {self.mark}, as changes are kept without end"
        return f"cleanup passes the watermark of {self.mark} in {self.left}"

    @property
    def left(self) -> str:
        """How long until then."""
        if_still = format_duration(self.headroom_seconds)
        return f"{format_duration(self.forecast_seconds)} at its pace ({if_still} if it stands still)"


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """What brings the cleanup job to the state that is wanted now. retention_minutes, threshold: to be set, None where
    they are as they should be. reason: one plain sentence. forecast: by the retention that is in force after this step;
    usual: by the one that is given back. low: the headroom is short by the usual retention, or has not been restored.
    exhausted: it is short whatever the policy does."""

    forecast: Forecast | None
    usual: Forecast | None
    reason: str
    retention_minutes: int | None = None
    threshold: int | None = None
    low: bool = False
    exhausted: bool = False


def pace_of(mark_at: datetime, reference_at: datetime | None, elapsed_seconds: float | None) -> float:
    """From where the watermark was ``elapsed_seconds`` ago. None: nothing is known, and it counts as standing still."""
    if reference_at is None or not elapsed_seconds or elapsed_seconds <= 0:
        return 0.0
    return max((mark_at - reference_at).total_seconds() / elapsed_seconds, 0.0)


def forecast_loss(marks: Sequence[Mark], newest_entry_at: datetime | None, retention_minutes: int) -> Forecast | None:
    """Of the mark that is lost first. None where there is nothing to lose."""
    if newest_entry_at is None:
        return None
    found = [_forecast(mark, newest_entry_at, retention_minutes) for mark in marks]
    return min(found, key=lambda each: (each.forecast_seconds, str(each.mark)), default=None)


def decide_retention(status: RetentionStatus, settings: RetentionSettings, marks: Sequence[Mark]) -> RetentionStep:
    """The cleanup job must be there: ``retention_minutes`` known."""
    current = status.retention_minutes
    assert current is not None  # noqa: S101  (keep_retention saw to it)
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


def _wanted(
    settings: RetentionSettings, current: int, keep: int, needed: int, *, restored: bool
) -> tuple[int, str]:  # fmt: skip
    if settings.keep_minutes is None:
        return current, f"the retention is {_kept(current)} and is left as it is."
    if needed > keep and settings.on_low is OnLow.HOLD_CLEANUP:
        return HOLD_MINUTES, "cleanup is held, because it would soon pass a watermark."
    if needed > keep and settings.on_low is OnLow.RAISE_RETENTION:
        ceiling = max(settings.ceiling_minutes, keep)
        wanted = max(min(_in_steps(needed, keep), ceiling), current)
        # What is in force is not lowered before the headroom is restored, unless it is beyond the ceiling and every
        # watermark can do without: whoever has set it may have done so because the ceiling is not enough.
        if current > ceiling >= needed:
            wanted = ceiling
        return wanted, f"the retention is {_kept(wanted)}, so that cleanup does not pass a watermark."
    if current > keep and not restored:
        return current, f"the retention stays {_kept(current)} until the headroom is restored."
    return keep, f"the retention is {_kept(keep)}, as configured."


def _needed_minutes(marks: Sequence[Mark], newest_entry_at: datetime | None, limit_seconds: float) -> int:
    """The retention by which every mark has the headroom."""
    if newest_entry_at is None:
        return 0
    seconds = [(newest_entry_at - mark.at).total_seconds() + limit_seconds * _loss(mark) for mark in marks]
    return ceil(max(seconds, default=0.0) / 60)


def _forecast(mark: Mark, newest_entry_at: datetime, retention_minutes: int) -> Forecast:
    headroom = max(retention_minutes * 60 - (newest_entry_at - mark.at).total_seconds(), 0.0)
    return Forecast(mark, headroom, headroom / _loss(mark))


def _loss(mark: Mark) -> float:
    """By how much the headroom shrinks in a second."""
    return max(1.0 - mark.pace, _LEAST_LOSS)


def _in_steps(needed: int, keep: int) -> int:
    step = max(keep // _STEPS, 60)
    return keep + ceil((needed - keep) / step) * step


def _kept(minutes: int) -> str:
    if minutes >= HOLD_MINUTES:
        return "without end"
    return f"{minutes / 60:.4g} h" if minutes < _SHOWN_IN_DAYS else f"{minutes / 1440:.4g} days"
