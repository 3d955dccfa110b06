"""What keeping the capture and cleanup jobs needs from the outside. Adapters: ``sqlserver.jobs``, ``ledger.upkeep``.
Every method raises from ``core.errors``."""

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
        """One look."""

    def start_capture(self) -> None:
        """Returns when the job runs. Harmless when it does already."""

    def stop_capture(self) -> None:
        """Returns when the job does not run any more. Harmless when it does not."""

    def change_capture(self, changes: Mapping[str, int]) -> None:
        """Parameters of sys.sp_cdc_change_job by name; a running job takes them when it is started again."""

    def read_heartbeat(self, table: TableName) -> Heartbeat:
        """Raises CdcNotEnabledError where the table is not there or its changes are not captured."""

    def beat(self, table: TableName, *, afresh: bool) -> None:
        """Write the next beat. afresh: it is the first that may not have arrived."""


class StopLedger(Protocol):
    """Which planned stops were ended before their time. A stop is known by its source and its planned beginning."""

    def read_ended_stop(self, source: str, since: datetime) -> str:
        """Why it was ended, "" where it was not."""

    def record_ended_stop(self, source: str, since: datetime, reason: str) -> None:
        """Repeating it is harmless: the first reason stays."""
