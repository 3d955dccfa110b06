"""Whether capture is alive, and on which evidence that is said.

Three grades, the best that is there decides: a heartbeat, a row that is written at the source so that its change must
arrive; the newest log scan, which proves that the job works; the age of the newest entry of ``cdc.lsn_time_mapping``,
which an idle source still makes every five minutes, so that silence means a job that does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from floodmark.core.source.capture_status import CaptureJobStatus


class Evidence(Enum):
    """The grade that a judgement rests on."""

    HEARTBEAT = "heartbeat"
    SCANS = "scan sessions"
    ACTIVITY = "job activity"
    """What the Agent says: it tells that a job runs, and not that it brings anything."""
    ENTRIES = "age of the newest entry of the log"
    NONE = "no evidence"


@dataclass(frozen=True, slots=True)
class Liveness:
    """alive: None where there is nothing to judge by. ``str()`` is the sentence for a log."""

    alive: bool | None
    evidence: Evidence
    words: str

    def __str__(self) -> str:
        state = {True: "is alive", False: "is not alive", None: "cannot be judged"}[self.alive]
        return f"Capture {state} (evidence: {self.evidence.value}): {self.words}"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One look at the heartbeat table; moments are local time of the source. beat: the one that was written last, at
    ``beaten_at``; arrived_beat: the newest in the change table, None while there is none. waiting_since: when the first
    beat was written that may not have arrived."""

    beat: int
    beaten_at: datetime
    waiting_since: datetime
    arrived_beat: int | None
    taken_at: datetime

    @property
    def has_arrived(self) -> bool:
        return self.arrived_beat is not None and self.arrived_beat >= self.beat


def judge_liveness(
    status: CaptureJobStatus, lag_limit_seconds: float, heartbeat: Heartbeat | None = None
) -> Liveness:  # fmt: skip
    """lag_limit_seconds: older evidence than this says that nothing is captured any more."""
    return (
        _judge_heartbeat(heartbeat, status.clock_ahead_seconds, lag_limit_seconds)
        or _judge_scan(status, lag_limit_seconds)
        or _judge_entries(status, lag_limit_seconds)
    )


def _judge_heartbeat(
    heartbeat: Heartbeat | None, clock_ahead_seconds: float, lag_limit_seconds: float
) -> Liveness | None:  # fmt: skip
    """None where it proves nothing: the last beat is on its way, or long ago."""
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
        return Liveness(False, Evidence.HEARTBEAT, f"no beat has arrived of those written in the last {waited:.0f} s.")
    return None


def _judge_scan(status: CaptureJobStatus, lag_limit_seconds: float) -> Liveness | None:
    scan = status.scan
    if scan is None:
        return None
    if scan.errors:
        return Liveness(False, Evidence.SCANS, f"the newest log scan failed: {status.error or 'the error is gone'}.")
    if scan.ended_at is None:
        return None  # in the middle of a scan: how old the newest entry is tells whether it gets anywhere
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
