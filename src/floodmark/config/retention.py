"""The part of ``pipelines.yaml`` about how long a source keeps its changes."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ByteSize, ConfigDict, PositiveInt, ValidationInfo, field_validator

from floodmark.config.fields import ConnectionId, Cron, Duration
from floodmark.core.upkeep.retention import HOLD_MINUTES, OnLow, RetentionSettings

_MINUTE = timedelta(minutes=1)


class RetentionConfig(BaseModel):
    """The section ``retention`` of a source: how long it keeps its changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    schedule: Cron = "*/15 * * * *"
    """How often the source is checked, in UTC."""
    conn_id: ConnectionId | None = None
    """A connection with a login that is db_owner; None: the source's own."""
    keep: Duration | None = None
    """The retention of the cleanup job; None: Floodmark does not change it."""
    headroom_limit: Duration = timedelta(days=1)
    """How long before cleanup passes a watermark an alert is raised."""
    ceiling: Duration = timedelta(days=14)
    """The longest retention that ``raise_retention`` sets."""
    threshold: PositiveInt | None = None
    """How many rows one statement of cleanup deletes."""
    cleanup_margin: Duration | None = None
    """How far behind the slowest watermark changes are cleaned up; None: only the cleanup job deletes them."""
    change_table_limit: ByteSize | None = None
    """How large a change table may be before an alert is raised."""
    # Declared after ``keep``, which it is checked against.
    on_low: OnLow = OnLow.ALERT

    @field_validator("keep", "ceiling")
    @classmethod
    def _check_range(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and not _MINUTE <= value < HOLD_MINUTES * _MINUTE:
            raise ValueError("a retention must be at least a minute and less than a hundred years")
        return value

    @field_validator("on_low")
    @classmethod
    def _check_policy(cls, value: OnLow, info: ValidationInfo) -> OnLow:
        if value is not OnLow.ALERT and "keep" in info.data and info.data["keep"] is None:
            raise ValueError(f"{value.value} requires keep, the retention that is restored afterwards")
        return value

    def settings(self) -> RetentionSettings:
        """Return the settings as plain values."""
        return RetentionSettings(
            keep_minutes=self.keep // _MINUTE if self.keep else None,
            ceiling_minutes=self.ceiling // _MINUTE,
            headroom_limit_seconds=self.headroom_limit.total_seconds(),
            on_low=self.on_low,
            threshold=self.threshold,
            margin_seconds=self.cleanup_margin.total_seconds() if self.cleanup_margin else None,
            change_table_limit_bytes=self.change_table_limit,
        )
