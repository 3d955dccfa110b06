"""The ports for managing the capture job. Adapters: ``sources.cdc.jobs``, ``postgres.ledger.upkeep``.

Every method raises from ``core.errors``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from floodmark.core.schema import TableName
from floodmark.core.source.capture_status import CaptureJobStatus
from floodmark.core.source.liveness import Heartbeat


class CaptureControl(Protocol):
    """The capture job of one source. Needs db_owner there."""

    def read_capture(self) -> CaptureJobStatus:
        """Return the current status of the capture job."""

    def start_capture(self) -> None:
        """Start the job and return when it runs. Harmless where it already runs."""

    def stop_capture(self) -> None:
        """Stop the job and return when it no longer runs. Harmless where it does not run."""

    def change_capture(self, changes: Mapping[str, int]) -> None:
        """Change parameters of sys.sp_cdc_change_job, by name. A running job uses them after its next start."""

    def read_heartbeat(self, table: TableName) -> Heartbeat:
        """Return the heartbeat. Raises CdcNotEnabledError where the table does not exist or is not captured."""

    def beat(self, table: TableName, *, afresh: bool) -> None:
        """Write the next beat. afresh: all earlier beats have arrived or no longer count."""


class StopLedger(Protocol):
    """A record of the planned stops that were ended early. A stop is identified by its source and its planned start."""

    def read_ended_stop(self, source: str, since: datetime) -> str:
        """Return why a stop was ended early, "" where it was not."""

    def record_ended_stop(self, source: str, since: datetime, reason: str) -> None:
        """Record why a stop was ended early. Repeating it is harmless: the first reason is kept."""
