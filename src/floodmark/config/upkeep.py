"""The parts of ``pipelines.yaml`` about a source's capture job and its heartbeat."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt

from floodmark.config.fields import Cron, Duration, SourceTableName
from floodmark.core.source.beats import HeartbeatSettings
from floodmark.core.upkeep.capture_job import CaptureSettings


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"not a time zone: {value!r} (expected a name such as Europe/Berlin)") from None
    return value


TimeZone = Annotated[str, AfterValidator(_check_zone)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class StopConfig(_Frozen):
    """A period without capture: from each firing of ``stop`` to the next firing of ``start``."""

    stop: Cron
    """When capture stops, in the time zone of the section."""
    start: Cron
    """When it starts again."""


class CaptureJobConfig(_Frozen):
    """Parameters of sys.sp_cdc_change_job, under its names and in its units.

    A parameter that is None is not changed.
    """

    maxtrans: PositiveInt | None = None
    """The most transactions of one scan of the log."""
    maxscans: PositiveInt | None = None
    """The most scans of one cycle."""
    pollinginterval: int | None = Field(default=None, ge=1, le=86_399)
    """The seconds between two cycles."""


class CaptureConfig(_Frozen):
    """The section ``capture`` of a source: how its capture job is maintained."""

    schedule: Cron = "*/5 * * * *"
    """How often the job is brought to the wanted state, in UTC."""
    conn_id: str | None = None
    """A connection with a login that is db_owner; None: the source's own."""
    time_zone: TimeZone = "UTC"
    """The time zone of ``stops``."""
    stops: tuple[StopConfig, ...] = ()
    job: CaptureJobConfig = CaptureJobConfig()
    drain_limit: Duration = timedelta(minutes=10)
    """How long a stop waits for capture to catch up."""
    lag_limit: Duration = timedelta(minutes=15)
    """How long capture may deliver nothing."""
    log_held_limit: Duration = timedelta(hours=12)
    """How long the source's log may be held for uncaptured changes before a stop is ended."""
    log_used_limit_percent: float = Field(default=70.0, gt=0, le=100)
    """How full the source's log may be before a stop is ended."""
    heartbeat: SourceTableName | None = None
    """A table of the source that each run writes to, and whose changes must arrive."""

    def settings(self) -> CaptureSettings:
        """Return the settings as plain values."""
        return CaptureSettings(
            job=self.job.model_dump(exclude_none=True),
            drain_limit_seconds=self.drain_limit.total_seconds(),
            lag_limit_seconds=self.lag_limit.total_seconds(),
            log_held_limit_seconds=self.log_held_limit.total_seconds(),
            log_used_limit_percent=self.log_used_limit_percent,
            heartbeat=self.heartbeat,
        )


class HeartbeatConfig(_Frozen):
    """The section ``heartbeat`` of a source: the proof that the server still streams."""

    table: SourceTableName
    """A table of a pipeline of the source, which runs write to, and whose changes must arrive."""
    limit: Duration = timedelta(minutes=15)
    """How long a change of it may take to arrive."""

    def settings(self) -> HeartbeatSettings:
        """Return the settings as plain values."""
        return HeartbeatSettings(self.table, self.limit.total_seconds())
