"""The status of the capture job, and the stop that is planned for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.source.editions import AZURE_SQL_DATABASE

REPLICATION = "REPLICATION"
"""The value of ``log_reuse_wait_desc`` while the log is held for uncaptured changes."""
_LOW_LATENCY_SECONDS = 15
_FRESH_SCAN_SECONDS = 300


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """A stop of the capture job that the schedule wants, from ``since`` to ``until``; both carry a zone."""

    since: datetime
    until: datetime

    def __str__(self) -> str:
        return f"a stop planned from {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M %Z}"


@dataclass(frozen=True, slots=True)
class LogScan:
    """The newest row of ``sys.dm_cdc_log_scan_sessions``."""

    ended_at: datetime | None
    transactions: int
    errors: int
    latency_seconds: int
    """The time from its last commit to its end."""


@dataclass(frozen=True, slots=True)
class CaptureJobStatus:
    """The status of the job at one moment. None: the login may not see it, or the server does not have it."""

    database: str
    engine_edition: int
    taken_at: datetime
    job: Mapping[str, int] | None
    """The parameters of the job; None: there is no capture job."""
    running: bool | None
    log_reuse_wait: str | None
    log_used_percent: float | None
    newest_entry_at: datetime | None
    """Of cdc.lsn_time_mapping."""
    scan: LogScan | None = None
    error: str | None = None
    """The newest error of sys.dm_cdc_errors."""
    clock_ahead_seconds: float = 0.0
    """By how much the server's clock was set forward in the last two hours; ages seem so much longer."""
    is_replica: bool = False
    """The database is read-only here, and the jobs of this server are not those that capture it."""

    @property
    def has_agent(self) -> bool:
        """Return whether a job can be started and stopped at all."""
        return self.engine_edition not in AZURE_SQL_DATABASE

    @property
    def has_own_schedule(self) -> bool:
        """Return whether a schedule of the Agent starts the job for one scan, and it does not run in between."""
        return (self.job or {}).get("continuous") == 0

    @property
    def seconds_without_entry(self) -> float | None:
        """Return for how long the log has had no new entry, None where it never had one."""
        return None if self.newest_entry_at is None else self.age_seconds(self.newest_entry_at)

    def age_seconds(self, moment: datetime) -> float:
        """Return the age of a moment of the server's local time; a lower bound, where its clock was set in between."""
        return max((self.taken_at - moment).total_seconds() - self.clock_ahead_seconds, 0.0)

    @property
    def caught_up(self) -> bool:
        """Return whether the newest scan reached the end of the log, or was close behind it.

        An empty scan while the log is held proves nothing: the job is being held back.
        """
        scan = self.scan
        if scan is None or scan.errors or scan.ended_at is None:
            return False
        if self.age_seconds(scan.ended_at) > _FRESH_SCAN_SECONDS:
            return False
        if scan.transactions:
            return scan.latency_seconds <= _LOW_LATENCY_SECONDS
        return self.log_reuse_wait != REPLICATION
