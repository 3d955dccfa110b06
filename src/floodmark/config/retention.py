"""The part of ``pipelines.yaml`` about how long a source keeps its changes."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ByteSize, ConfigDict, PositiveInt, ValidationInfo, field_validator

from floodmark.config.fields import ConnectionId, Cron, Duration
from floodmark.core.upkeep.retention import HOLD_MINUTES, OnLow, RetentionSettings

_MINUTE = timedelta(minutes=1)


class RetentionConfig(BaseModel):
    """schedule: how often the source is looked at, in UTC. conn_id: a connection with a login that is db_owner, the
    source's own where it is None. keep: the retention of the cleanup job, None to leave that to others.

    headroom_limit: how long before cleanup passes a watermark somebody is told. ceiling: how far ``raise_retention``
    goes. threshold: rows that a statement of cleanup deletes. cleanup_margin: how far behind the slowest watermark
    changes are cleaned up, None to leave that to the cleanup job. change_table_limit: how large a change table may be
    before somebody is told.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    schedule: Cron = "*/15 * * * *"
    conn_id: ConnectionId | None = None
    keep: Duration | None = None
    headroom_limit: Duration = timedelta(days=1)
    ceiling: Duration = timedelta(days=14)
    threshold: PositiveInt | None = None
    cleanup_margin: Duration | None = None
    change_table_limit: ByteSize | None = None
    # After keep: what it is checked against.
    on_low: OnLow = OnLow.ALERT

    @field_validator("keep", "ceiling")
    @classmethod
    def _check_range(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and not _MINUTE <= value < HOLD_MINUTES * _MINUTE:
            raise ValueError("a retention is at least a minute and less than a hundred years")
        return value

    @field_validator("on_low")
    @classmethod
    def _check_policy(cls, value: OnLow, info: ValidationInfo) -> OnLow:
        if value is not OnLow.ALERT and "keep" in info.data and info.data["keep"] is None:
            raise ValueError(f"{value.value} needs keep: the retention that is given back afterwards")
        return value

    def settings(self) -> RetentionSettings:
        return RetentionSettings(
            keep_minutes=self.keep // _MINUTE if self.keep else None,
            ceiling_minutes=self.ceiling // _MINUTE,
            headroom_limit_seconds=self.headroom_limit.total_seconds(),
            on_low=self.on_low,
            threshold=self.threshold,
            margin_seconds=self.cleanup_margin.total_seconds() if self.cleanup_margin else None,
            change_table_limit_bytes=self.change_table_limit,
        )
