"""Alerts about runs: one that failed, one that does not end, and data that are late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from floodmark.core.alert import Alert
from floodmark.core.durations import format_duration
from floodmark.core.errors import (
    FloodmarkError,
    InstanceReplacedError,
    SourceRewoundError,
    TableNotPlannableError,
    TableRefusedError,
    TargetLostError,
    WindowExpiredError,
)
from floodmark.core.status.measures import TableMeasure

RUN_FAILED = "run_failed"
REPLAY_FAILED = "replay_failed"
RUN_LATE = "run_late"
LAG = "lag"
CAPTURE_RUN_FAILED = "capture_run_failed"
DRIFT_RUN_FAILED = "drift_run_failed"
LOAD_RUN_FAILED = "load_run_failed"
RETENTION_RUN_FAILED = "retention_run_failed"
SWITCH_RUN_FAILED = "switch_run_failed"
_MEANS = {
    RUN_FAILED: "No new rows arrive until a run succeeds. Nothing is lost as long as the source keeps its changes.",
    REPLAY_FAILED: "The run's data interval has not been merged again. Watermarks do not move "
    "in a backfill: the scheduled runs go on, and no table is late because of it.",
    CAPTURE_RUN_FAILED: "The source's capture job is neither maintained nor checked until a run succeeds.",
    RETENTION_RUN_FAILED: "No one checks whether cleanup is about to pass a watermark until a run succeeds.",
    LOAD_RUN_FAILED: "A table that is reloaded keeps its old rows until a run succeeds. Staged rows are kept.",
    DRIFT_RUN_FAILED: "Schema drift is detected only by the runs of the pipelines until a run succeeds.",
    SWITCH_RUN_FAILED: "A switch of capture instances is suspended. Pipelines continue with the instance they read.",
}
_GAPS = {each.__name__ for each in (WindowExpiredError, InstanceReplacedError, SourceRewoundError, TargetLostError)}
_GAP_MEANS = "No new rows arrive in the named tables until they have been reloaded. The others go on."
_LEFT_OUT = {TableNotPlannableError.__name__, TableRefusedError.__name__}
_LEFT_OUT_MEANS = "No new rows arrive in the named tables until the cause is removed. The others go on."
_NAMED_TABLES = 3


@dataclass(frozen=True, slots=True)
class RunFailure:
    """The reason why a task failed, in words that may leave the organisation."""

    error: str
    """The name of its class."""
    subject: str
    """The table, pipeline or source that it is about."""
    message: str
    hint: str

    @classmethod
    def of(cls, error: FloodmarkError) -> RunFailure:
        """Return the failure for an error."""
        return cls(type(error).__name__, error.subject, error.message, error.hint)

    @classmethod
    def parse(cls, value: object) -> RunFailure | None:
        """Return the failure that a task left behind; None where it left nothing that can be read."""
        if not isinstance(value, Mapping) or not all(isinstance(value.get(name), str) for name in cls.__slots__):
            return None
        return cls(*(value[name] for name in cls.__slots__))


def run_failed(
    kind: str, subject: str, failure: RunFailure | None, *, dag_id: str, run_id: str, task_id: str, part: str = ""
) -> Alert:
    """Return the alert that a run failed: one per cause, until a run succeeds.

    kind: one of the above that end in ``failed``. failure None: the task ended before it could report a reason. part:
    of a backfill, its interval as ``data_interval`` returns it; the alert ends when every interval that failed for the
    cause has succeeded.
    """
    if failure is None:
        what = "The task ended without reporting an error: it was killed, or met an error that Floodmark does not know."
        do = "Check the log of the task in Airflow. "
        do += "Then clear the run." if kind == REPLAY_FAILED else "The next run continues where this one ended."
        cause = f"silent:{task_id}"
    else:
        what = f"{failure.subject}: {failure.message}"
        do, cause = failure.hint or "Check the log of the task in Airflow.", f"{failure.error}:{failure.subject}"
    means = _MEANS[kind]
    if kind == RUN_FAILED and failure is not None:
        means = _GAP_MEANS if failure.error in _GAPS else _LEFT_OUT_MEANS if failure.error in _LEFT_OUT else means
    return Alert(
        kind=kind,
        subject=subject,
        what=what,
        means=means,
        do=do,
        event_key=f"{kind}:{subject}:{cause}",
        where=f"DAG {dag_id}, run {run_id}" + (f", task {task_id}" if task_id else ""),
        part=part,
    )


def data_interval(begin: datetime, end: datetime) -> str:
    """Return the same text for the same two moments, whatever zone they are given in."""
    return f"{begin.astimezone(UTC).isoformat()}/{end.astimezone(UTC).isoformat()}"


def parse_data_interval(part: str) -> tuple[datetime, datetime]:
    """Return the moments of a text of ``data_interval``. Raises ValueError."""
    begin, end = part.split("/")
    return datetime.fromisoformat(begin), datetime.fromisoformat(end)


def run_late(pipeline: str, run_id: str, queued_at: str, limit_seconds: float) -> Alert:
    """Return the alert that a run does not end.

    queued_at: for a person, with its zone.
    """
    return Alert(
        kind=RUN_LATE,
        subject=pipeline,
        what=f"Run {run_id} has not ended within {format_duration(limit_seconds)} (`max_lag`) of being queued.",
        means="The rows that it carries are late. Runs of a pipeline follow one another: the next one waits for it.",
        do="Check in Airflow whether it waits for a free slot, is being retried, was interrupted because the DAG was "
        "paused, or loads many rows. A load reports its progress in the log of its task.",
        event_key=f"{RUN_LATE}:{pipeline}",
        where=f"pipeline {pipeline}, run {run_id}",
        since=queued_at,
    )


def lag(pipeline: str, late: Sequence[TableMeasure], limit_seconds: float, taken_at: datetime) -> Alert:
    """Return the alert that tables are late.

    late: the tables beyond the limit, at least one. taken_at: local time of the source.
    """
    worst_first = sorted(late, key=lambda each: each.lag_seconds or 0.0, reverse=True)
    named = ", ".join(
        f"{each.table} by {format_duration(each.lag_seconds or 0.0)}" for each in worst_first[:_NAMED_TABLES]
    )
    more = f" and {len(late) - _NAMED_TABLES} more" if len(late) > _NAMED_TABLES else ""
    return Alert(
        kind=LAG,
        subject=pipeline,
        what=f"Behind the source: {named}{more}; the limit is {format_duration(limit_seconds)} (`max_lag`).",
        means="Readers of these tables in the warehouse see old rows.",
        do=f"Run `floodmark status {pipeline} --live`. A table that is held waits for a decision. Where the verdict is "
        "about capture, check the capture job. Otherwise runs fail, are too rare, or take too long.",
        event_key=f"{LAG}:{pipeline}",
        where=f"pipeline {pipeline}",
        since=f"{taken_at:%Y-%m-%d %H:%M:%S}, by the source's clock",
    )
