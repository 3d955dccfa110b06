"""The part of ``pipelines.yaml`` about a source's own jobs: when capture is stopped, and how long changes are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt

from floodmark.config.fields import Cron, Duration, SourceTableName
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
    """The capture job is stopped from each firing of ``stop`` to the next firing of ``start``."""

    stop: Cron
    start: Cron


class CaptureJobConfig(_Frozen):
    """Parameters of sys.sp_cdc_change_job, under its names and in its units; what is None is left alone."""

    maxtrans: PositiveInt | None = None
    maxscans: PositiveInt | None = None
    pollinginterval: int | None = Field(default=None, ge=1, le=86_399)


class CaptureConfig(_Frozen):
    """schedule: how often the job is brought to its state, in UTC. time_zone: of ``stops``.

    conn_id: a connection with a login that is db_owner, the source's own where it is None. drain_limit: how long a stop
    waits for capture to catch up. lag_limit: how long capture may bring nothing. log_held_limit and
    log_used_limit_percent: how long the source's log may be held for changes that are not captured, and how full it
    may be, before a stop is ended. heartbeat: a table of the source that each run writes to, and whose changes must
    arrive.
    """

    schedule: Cron = "*/5 * * * *"
    conn_id: str | None = None
    time_zone: TimeZone = "UTC"
    stops: tuple[StopConfig, ...] = ()
    job: CaptureJobConfig = CaptureJobConfig()
    drain_limit: Duration = timedelta(minutes=10)
    lag_limit: Duration = timedelta(minutes=15)
    log_held_limit: Duration = timedelta(hours=12)
    log_used_limit_percent: float = Field(default=70.0, gt=0, le=100)
    heartbeat: SourceTableName | None = None

    def settings(self) -> CaptureSettings:
        return CaptureSettings(
            job=self.job.model_dump(exclude_none=True),
            drain_limit_seconds=self.drain_limit.total_seconds(),
            lag_limit_seconds=self.lag_limit.total_seconds(),
            log_held_limit_seconds=self.log_held_limit.total_seconds(),
            log_used_limit_percent=self.log_used_limit_percent,
            heartbeat=self.heartbeat,
        )
