"""The capture job as it was found, and the stop that is planned for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.source.editions import AZURE_SQL_DATABASE

REPLICATION = "REPLICATION"
"""``log_reuse_wait_desc`` while the log is held for changes that have not been captured."""
_LOW_LATENCY_SECONDS = 15
_FRESH_SCAN_SECONDS = 300


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """The schedule wants the capture job stopped from ``since`` to ``until``; both carry a zone."""

    since: datetime
    until: datetime

    def __str__(self) -> str:
        return f"a stop planned from {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M %Z}"


@dataclass(frozen=True, slots=True)
class LogScan:
    """The newest row of ``sys.dm_cdc_log_scan_sessions``. latency_seconds: from its last commit to its end."""

    ended_at: datetime | None
    transactions: int
    errors: int
    latency_seconds: int


@dataclass(frozen=True, slots=True)
class CaptureJobStatus:
    """One look at the job. None stands for what the login may not see, or the server does not have.

    job: its parameters, None where there is no capture job. newest_entry_at: of cdc.lsn_time_mapping.
    error: the newest of sys.dm_cdc_errors. clock_ahead_seconds: by how much the server's clock was set forward in the
    last two hours, so that ages seem so much longer. is_replica: the database can only be read here, and
    the jobs of this server are not those that capture it.
    """

    database: str
    engine_edition: int
    taken_at: datetime
    job: Mapping[str, int] | None
    running: bool | None
    log_reuse_wait: str | None
    log_used_percent: float | None
    newest_entry_at: datetime | None
    scan: LogScan | None = None
    error: str | None = None
    clock_ahead_seconds: float = 0.0
    is_replica: bool = False

    @property
    def has_agent(self) -> bool:
        """Whether a job can be started and stopped at all."""
        return self.engine_edition not in AZURE_SQL_DATABASE

    @property
    def has_own_schedule(self) -> bool:
        """Whether the job scans once whenever a schedule of the Agent's starts it, and does not run in between."""
        return (self.job or {}).get("continuous") == 0

    @property
    def seconds_without_entry(self) -> float | None:
        """How long the log has brought nothing. None: it never has."""
        return None if self.newest_entry_at is None else self.age_seconds(self.newest_entry_at)

    def age_seconds(self, moment: datetime) -> float:
        """Of a moment of the server's local time; at least so much, where its clock was set in between."""
        return max((self.taken_at - moment).total_seconds() - self.clock_ahead_seconds, 0.0)

    @property
    def caught_up(self) -> bool:
        """Whether the newest scan found the end of the log, or was close behind it.

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
