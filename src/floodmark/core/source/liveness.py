"""The check whether capture is alive, with its evidence.

There are three kinds of evidence; the best that is available decides. A heartbeat is a row that is written at the
source so that its change must arrive. The newest log scan proves that the job works. The age of the newest entry of
``cdc.lsn_time_mapping`` is the weakest: an idle source makes one every five minutes, so that silence means a job that
does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from floodmark.core.source.capture_status import CaptureJobStatus


class Evidence(Enum):
    """The kind of evidence that a judgement rests on."""

    HEARTBEAT = "heartbeat"
    SCANS = "scan sessions"
    ACTIVITY = "job activity"
    """The status of the Agent: it shows that a job runs, and not that it captures anything."""
    ENTRIES = "age of the newest entry of the log"
    NONE = "no evidence"


@dataclass(frozen=True, slots=True)
class Liveness:
    """A judgement on capture. ``str()`` is the sentence for a log."""

    alive: bool | None
    """None where there is no evidence."""
    evidence: Evidence
    words: str

    def __str__(self) -> str:
        state = {True: "is alive", False: "is not alive", None: "cannot be judged"}[self.alive]
        return f"Capture {state} (evidence: {self.evidence.value}): {self.words}"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat table at one moment; times are local time of the source."""

    beat: int
    """The number that was written last."""
    beaten_at: datetime
    """When ``beat`` was written."""
    waiting_since: datetime
    """When the first beat was written that may not have arrived."""
    arrived_beat: int | None
    """The newest in the change table; None while there is none."""
    taken_at: datetime

    @property
    def has_arrived(self) -> bool:
        """Return whether the last beat is in the change table."""
        return self.arrived_beat is not None and self.arrived_beat >= self.beat


def judge_liveness(status: CaptureJobStatus, lag_limit_seconds: float, heartbeat: Heartbeat | None = None) -> Liveness:
    """Return whether capture is alive, by the best evidence there is.

    lag_limit_seconds: evidence older than this means that nothing is being captured.
    """
    return (
        _judge_heartbeat(heartbeat, status.clock_ahead_seconds, lag_limit_seconds)
        or _judge_scan(status, lag_limit_seconds)
        or _judge_entries(status, lag_limit_seconds)
    )


def _judge_heartbeat(
    heartbeat: Heartbeat | None, clock_ahead_seconds: float, lag_limit_seconds: float
) -> Liveness | None:
    """Return the judgement, None where the last beat is still on its way, or too long ago, to prove anything."""
    if heartbeat is None:
        return None
    beaten, waited = (
        max((heartbeat.taken_at - at).total_seconds() - clock_ahead_seconds, 0.0)
        for at in (heartbeat.beaten_at, heartbeat.waiting_since)
    )
    if heartbeat.has_arrived:
        words = f"the beat written {beaten:.0f} s ago has arrived."
        return Liveness(True, Evidence.HEARTBEAT, words) if beaten <= lag_limit_seconds else None
    if waited > lag_limit_seconds:
        return Liveness(False, Evidence.HEARTBEAT, f"none of the beats written in the last {waited:.0f} s has arrived.")
    return None


def _judge_scan(status: CaptureJobStatus, lag_limit_seconds: float) -> Liveness | None:
    scan = status.scan
    if scan is None:
        return None
    if scan.errors:
        return Liveness(
            False, Evidence.SCANS, f"the newest log scan failed: {status.error or 'its error is no longer listed'}."
        )
    if scan.ended_at is None:
        return None  # a scan is running: the age of the newest entry shows its progress
    age = status.age_seconds(scan.ended_at)
    if age > lag_limit_seconds:
        return Liveness(False, Evidence.SCANS, f"the newest log scan ended {age:.0f} s ago.")
    if scan.transactions and scan.latency_seconds > lag_limit_seconds:
        words = f"the newest log scan ended {age:.0f} s ago and was {scan.latency_seconds} s behind the commits."
        return Liveness(False, Evidence.SCANS, words)
    return Liveness(True, Evidence.SCANS, f"the newest log scan ended {age:.0f} s ago.")


def _judge_entries(status: CaptureJobStatus, lag_limit_seconds: float) -> Liveness:
    age = status.seconds_without_entry
    if age is None:
        return Liveness(None, Evidence.NONE, "nothing has been captured yet.")
    return Liveness(age <= lag_limit_seconds, Evidence.ENTRIES, f"the newest entry of the log is {age:.0f} s old.")
