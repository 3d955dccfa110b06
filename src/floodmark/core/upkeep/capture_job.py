"""The capture job of a source: how it is wanted, and what a run does to bring it to that state.

Each run compares the current state with the schedule, so that nothing has to be remembered between runs: the next run
makes up for one that was missed, killed or late. Times of the server are its local time; times of the schedule carry a
zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from floodmark.core.errors import SourceAdminError
from floodmark.core.schema import TableName
from floodmark.core.source.capture_status import REPLICATION, CaptureJobStatus, PlannedStop

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
