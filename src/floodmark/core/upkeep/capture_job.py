"""The capture job of a source: what one look shows of it, how it is wanted, and what a run does about the difference.

Each run compares what is with what the schedule says for now, so that nothing has to be remembered between runs: a run
that was missed, killed or came late is made good by the next. Times of the server are its local time; times of the
schedule carry a zone.
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
_WHEN_FULL = "when it has no room left, every writer of the database fails (error 9002)"
_SCAN_SIZES = frozenset({"maxtrans", "maxscans"})


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """``job``: parameters of sys.sp_cdc_change_job by name, those that are to be held. Limits in seconds and percent.

    drain_limit_seconds: how long a planned stop waits for capture to catch up. log_held_limit_seconds: how long the log
    may be held for changes that are not captured; log_used_limit_percent: how full it may be in a stop.
    heartbeat: the table whose changes prove that capture works, None for no such proof.
    """

    job: Mapping[str, int] = field(default_factory=dict)
    drain_limit_seconds: float = 600.0
    lag_limit_seconds: float = 900.0
    log_held_limit_seconds: float = 14400.0
    log_used_limit_percent: float = 70.0
    heartbeat: TableName | None = None


def on_replica(source: str, key: str) -> SourceAdminError:
    """Where jobs were to be looked after that are another server's. key: of the source in the configuration."""
    return SourceAdminError(
        source, "this is a copy that can only be read: its capture and cleanup are jobs of the primary.",
        f"Let the connection of sources.{source}.{key} (conn_id) lead to the primary, as a listener of the availability"
        " group does without ApplicationIntent=ReadOnly.",
    )  # fmt: skip


class Action(Enum):
    """What a run does to the job."""

    NOTHING = "nothing"
    WAIT = "wait"
    """For capture to catch up; the next run looks again."""
    STOP = "stop"
    START = "start"
    CHANGE = "change"
    """Its parameters, while it does not run."""
    RESTART = "restart"
    """Stop, change, start: in this order a run that is killed in between leaves nothing that the next does not mend."""


@dataclass(frozen=True, slots=True)
class Step:
    """``reason``: one plain sentence. guard: why a planned stop is refused or ended, "" where it is not."""

    action: Action
    reason: str
    changes: Mapping[str, int] = field(default_factory=dict)
    guard: str = ""


def decide_step(
    status: CaptureJobStatus, settings: CaptureSettings, stop: PlannedStop | None, now: datetime, ended: str = ""
) -> Step:
    """What brings the job to the state that is wanted now.

    stop: the planned one that ``now`` lies in; both carry a zone. ended: why that stop was ended before, "" where it
    was not: a stop that was ended is not begun again. The job must be there and visible: ``job`` and ``running`` known,
    unless the server has no Agent.
    """
    changes = {name: value for name, value in settings.job.items() if (status.job or {}).get(name) != value}
    if not status.has_agent:
        return _without_agent(changes, stop)
    if status.has_own_schedule:
        return _by_own_schedule(changes, stop)
    guard = (ended or _guard(status, settings, stop, now)) if stop else ""
    if stop and not guard:
        return _toward_stop(status, settings, stop, now, changes)
    reason = f"{stop} is not kept: {guard}" if stop else "the schedule wants it to run"
    if not status.running:
        return Step(Action.START, f"it does not run, and {reason}.", changes, guard)
    if changes:
        return Step(Action.RESTART, f"{_listed(changes)} are not in force, and take a restart.", changes, guard)
    return Step(Action.NOTHING, f"it runs, and {reason}.", guard=guard)


def _toward_stop(
    status: CaptureJobStatus, settings: CaptureSettings, stop: PlannedStop, now: datetime, changes: Mapping[str, int]
) -> Step:  # fmt: skip
    if not status.running:
        if changes:
            return Step(Action.CHANGE, f"it is stopped by {stop}; {_listed(changes)} come with its start.", changes)
        return Step(Action.NOTHING, f"it is stopped by {stop}.")
    if status.caught_up:
        return Step(Action.STOP, f"{stop} has begun, and capture has caught up.", changes)
    waited = (now - stop.since).total_seconds()
    if waited >= settings.drain_limit_seconds:
        return Step(
            Action.STOP, f"{stop} has begun; capture has not caught up in {waited:.0f} s and goes on after it.", changes
        )
    return Step(
        Action.WAIT,
        f"{stop} has begun; it waits for capture to catch up, at most {settings.drain_limit_seconds:.0f} s.",
    )


def _guard(status: CaptureJobStatus, settings: CaptureSettings, stop: PlannedStop, now: datetime) -> str:
    """Why the log cannot bear a stop, or "".

    The log names one reason why it is not cut: where LOG_BACKUP or ACTIVE_TRANSACTION stands, changes that wait to be
    captured may hold it as well. So a log that is full ends a stop whatever it names.
    """
    used, reason = status.log_used_percent, status.log_reuse_wait
    if used is not None and used > settings.log_used_limit_percent:
        full = f"the log is {used:.0f} % full (limit {settings.log_used_limit_percent:.0f} %)"
        if reason == REPLICATION:
            return f"{full} and held for changes that are not captured; {_WHEN_FULL}"
        named = reason or "no reason"
        return f"{full}; it names {named}, behind which changes that are not captured may hold it too; {_WHEN_FULL}"
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
    return f"the log {words} for {held:.0f} s for changes that are not captured {limit}"


def _without_agent(changes: Mapping[str, int], stop: PlannedStop | None) -> Step:
    """The server's own scheduler captures every 20 seconds, and takes the sizes of a scan from its job table."""
    guard = "the server has no Agent, so that its capture can be neither stopped nor started" if stop else ""
    sizes = {name: value for name, value in changes.items() if name in _SCAN_SIZES}
    if sizes:
        return Step(Action.CHANGE, f"{_listed(sizes)} are not in force.", sizes, guard)
    return Step(Action.NOTHING, "the server has no Agent, and captures by a scheduler of its own.", guard=guard)


def _by_own_schedule(changes: Mapping[str, int], stop: PlannedStop | None) -> Step:
    """Each start of the job reads its parameters, and the next start comes by itself."""
    owned = "it scans by a schedule of its own (continuous = 0)"
    guard = f"{owned}, which starts it whatever was planned" if stop else ""
    if changes:
        return Step(Action.CHANGE, f"{owned}; {_listed(changes)} come with its next start.", changes, guard)
    return Step(Action.NOTHING, f"{owned}.", guard=guard)


def _listed(changes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in changes.items())
