"""The wanted state of a source's capture job and of its retention, and what a run does to reach it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from math import ceil

from floodmark.core.capture import REPLICATION, CaptureJobStatus, PlannedStop
from floodmark.core.errors import SourceAdminError
from floodmark.core.position import Position, format_duration
from floodmark.core.schema import TableName

# --------------------------------------------------------------------------------------------------------------------
# The capture job of a source: how it is wanted, and what a run does to bring it to that state.
#
# Each run compares the current state with the schedule, so that nothing has to be remembered between runs: the next run
# makes up for one that was missed, killed or late. Times of the server are its local time; times of the schedule carry
# a zone.


_NOT_HELD = "NOTHING"
_WHEN_FULL = "when it has no space left, every write to the database fails (error 9002)"
_SCAN_SIZES = frozenset({"maxtrans", "maxscans"})


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """The wanted state of the capture job of a source."""

    job: Mapping[str, int] = field(default_factory=dict)
    """Parameters of sys.sp_cdc_change_job by name; only these are maintained."""
    drain_limit_seconds: float = 600.0
    """How long a planned stop waits for capture to catch up."""
    lag_limit_seconds: float = 900.0
    log_held_limit_seconds: float = 14400.0
    """How long the log may be held for uncaptured changes."""
    log_used_limit_percent: float = 70.0
    """How full the log may be in a stop."""
    heartbeat: TableName | None = None
    """The table whose changes prove that capture works; None for no such proof."""


def on_replica(source: str, key: str) -> SourceAdminError:
    """Return the error for jobs that belong to another server.

    key: of the source in the configuration.
    """
    return SourceAdminError(
        source,
        "this is a read-only replica: its capture and cleanup are jobs of the primary.",
        f"Let the connection of sources.{source}.{key} (conn_id) lead to the primary, as a listener of the availability"
        " group does without ApplicationIntent=ReadOnly.",
    )


class Action(Enum):
    """An action of a run on the job."""

    NOTHING = "nothing"
    WAIT = "wait"
    """Wait for capture to catch up; the next run checks again."""
    STOP = "stop"
    START = "start"
    CHANGE = "change"
    """Change its parameters, while it is not running."""
    RESTART = "restart"
    """Stop, change, start: in this order, the next run completes what a killed run left unfinished."""


@dataclass(frozen=True, slots=True)
class Step:
    """The action of a run, and its reason."""

    action: Action
    reason: str
    """One plain sentence."""
    changes: Mapping[str, int] = field(default_factory=dict)
    guard: str = ""
    """Why a planned stop is refused or ended, "" where it is not."""


def decide_step(
    status: CaptureJobStatus, settings: CaptureSettings, stop: PlannedStop | None, now: datetime, ended: str = ""
) -> Step:
    """Return the step that brings the job to the state that is wanted now.

    stop: the planned one that is in effect at ``now``; both carry a zone. ended: why that stop was ended before, ""
    where it was not: a stop that was ended does not begin again. The job must exist and be visible: ``job`` and
    ``running`` known, unless the server has no Agent.
    """
    changes = {name: value for name, value in settings.job.items() if (status.job or {}).get(name) != value}
    if not status.has_agent:
        return _without_agent(changes, stop)
    if status.has_own_schedule:
        return _by_own_schedule(changes, stop)
    guard = (ended or _guard(status, settings, stop, now)) if stop else ""
    if stop and not guard:
        return _toward_stop(status, settings, stop, now, changes)
    reason = f"{stop} is not kept: {guard}" if stop else "the schedule requires it"
    if not status.running:
        return Step(Action.START, f"it is not running, and {reason}.", changes, guard)
    if changes:
        return Step(Action.RESTART, f"{_listed(changes)} are not in effect, and require a restart.", changes, guard)
    return Step(Action.NOTHING, f"it is running, and {reason}.", guard=guard)


def _toward_stop(
    status: CaptureJobStatus, settings: CaptureSettings, stop: PlannedStop, now: datetime, changes: Mapping[str, int]
) -> Step:
    if not status.running:
        if changes:
            return Step(
                Action.CHANGE, f"it is stopped by {stop}; {_listed(changes)} take effect with its start.", changes
            )
        return Step(Action.NOTHING, f"it is stopped by {stop}.")
    if status.caught_up:
        return Step(Action.STOP, f"{stop} has begun, and capture has caught up.", changes)
    waited = (now - stop.since).total_seconds()
    if waited >= settings.drain_limit_seconds:
        return Step(
            Action.STOP,
            f"{stop} has begun; capture has not caught up in {waited:.0f} s and continues after it.",
            changes,
        )
    return Step(
        Action.WAIT,
        f"{stop} has begun; it waits for capture to catch up, at most {settings.drain_limit_seconds:.0f} s.",
    )


def _guard(status: CaptureJobStatus, settings: CaptureSettings, stop: PlannedStop, now: datetime) -> str:
    """Return why the log does not allow a stop, or "".

    The log names one reason why it is not truncated: where that is LOG_BACKUP or ACTIVE_TRANSACTION, uncaptured changes
    may hold it as well. So a log that is full ends a stop whatever the reason is.
    """
    used, reason = status.log_used_percent, status.log_reuse_wait
    if used is not None and used > settings.log_used_limit_percent:
        full = f"the log is {used:.0f} % full (limit {settings.log_used_limit_percent:.0f} %)"
        if reason == REPLICATION:
            return f"{full} and held for uncaptured changes; {_WHEN_FULL}"
        named = reason or "no reason"
        return f"{full}; it names {named}, and uncaptured changes may hold it as well; {_WHEN_FULL}"
    if reason == REPLICATION:
        words = "has been held"
    elif used is None and reason not in (None, _NOT_HELD):
        words = f"names {reason}, and may have been held"
    else:
        return ""
    held = status.seconds_without_entry
    if held is None:
        held = (now - stop.since).total_seconds()
    if held <= settings.log_held_limit_seconds:
        return ""
    limit = f"(limit {settings.log_held_limit_seconds:.0f} s)"
    return f"the log {words} for {held:.0f} s for uncaptured changes {limit}"


def _without_agent(changes: Mapping[str, int], stop: PlannedStop | None) -> Step:
    """Return the step on a server without an Agent.

    Its own scheduler captures every 20 seconds, with the scan sizes of the job table.
    """
    guard = "the server has no Agent, so its capture can be neither stopped nor started" if stop else ""
    sizes = {name: value for name, value in changes.items() if name in _SCAN_SIZES}
    if sizes:
        return Step(Action.CHANGE, f"{_listed(sizes)} are not in effect.", sizes, guard)
    return Step(Action.NOTHING, "the server has no Agent, and captures with a scheduler of its own.", guard=guard)


def _by_own_schedule(changes: Mapping[str, int], stop: PlannedStop | None) -> Step:
    """Return the step for a job that reads its parameters at each start, and is started by its own schedule."""
    owned = "it scans by a schedule of its own (continuous = 0)"
    guard = f"{owned}, which starts it during a planned stop, too" if stop else ""
    if changes:
        return Step(Action.CHANGE, f"{owned}; {_listed(changes)} take effect with its next start.", changes, guard)
    return Step(Action.NOTHING, f"{owned}.", guard=guard)


def _listed(changes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in changes.items())


# --------------------------------------------------------------------------------------------------------------------
# The sizes of the change tables of a source: the rows and bytes of its captured changes until cleanup deletes them.


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


@dataclass(frozen=True, slots=True)
class ChangeTableSize:
    """The size of the change table of a capture instance."""

    instance: str
    table: TableName
    """The tracked table, under its current name."""
    rows: int | None
    """None where the login may not see it."""
    size_bytes: int | None
    """None where the login may not see it."""
    low_end: Position | None = None
    """Where its validity begins; None where that is not known yet."""

    def __str__(self) -> str:
        rows = "-" if self.rows is None else f"{self.rows:,}"
        return f"{rows} rows, {format_bytes(self.size_bytes)}"


def format_bytes(size: int | None) -> str:
    """Return a size as text, in powers of 1024."""
    if size is None:
        return "-"
    value, unit = float(size), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size} B"


def largest_first(sizes: Iterable[ChangeTableSize]) -> list[ChangeTableSize]:
    """Return the sizes, largest first."""
    return sorted(sizes, key=lambda size: (-(size.size_bytes or 0), size.instance))


def sizes_of(table: TableName, sizes: Iterable[ChangeTableSize]) -> tuple[ChangeTableSize, ...]:
    """Return the sizes for the capture instances of a table, by their names.

    Tables whose name differs in case alone count where there is none of exactly that name.
    """
    found = [size for size in sizes if size.table.folded == table.folded]
    exact = [size for size in found if size.table == table]
    return tuple(sorted(exact or found, key=lambda size: size.instance))


def table_sizes(
    tables: Iterable[TableName], sizes: Sequence[ChangeTableSize]
) -> dict[TableName, tuple[int | None, int | None]]:
    """Return rows and bytes of all change tables of each table. Tables of which nothing is known are left out."""
    found = {}
    for table in tables:
        own = sizes_of(table, sizes)
        measured = total([size.rows for size in own]), total([size.size_bytes for size in own])
        if measured != (None, None):
            found[table] = measured
    return found


def total(values: Sequence[int | None]) -> int | None:
    """Return the sum, None where a value is unknown or there is none."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


# --------------------------------------------------------------------------------------------------------------------
# The retention of a source, compared with the progress of its readers: forecast and decision.
#
# Cleanup deletes what is older than the newest entry of ``cdc.lsn_time_mapping`` by more than the retention. A
# watermark is lost when that line passes it; the line moves as the log moves, and the watermark at the pace of its
# pipeline. As for the capture job, each run compares the current state with the wanted one, so that nothing is
# remembered between runs: a retention above ``keep`` is one that was raised. Times are the source's local time.


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
    position: Position
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
