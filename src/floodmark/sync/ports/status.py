"""``StatusLedger``: all that the ledger says of a pipeline, read at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from floodmark.core.drift.shapes import Difference
from floodmark.core.drift.switch import InstanceSwitch
from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import Verdict
from floodmark.core.status.report import LastWindow
from floodmark.sync.alerts import OpenAlert
from floodmark.sync.ports.drift import DriftEvent


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """A table as the runs of its pipeline left it."""

    watermark: Lsn | None
    watermark_at: datetime | None
    consistent: bool
    verdict: Verdict | None
    cause: str
    hint: str
    verdict_since: datetime | None
    verdict_seen_at: datetime | None
    windows: int
    """Published windows without replays; the rows are theirs."""
    read_rows: int
    inserted_rows: int
    updated_rows: int
    deleted_rows: int
    quarantined_rows: int
    advanced_at: datetime | None
    last_window: LastWindow | None


@dataclass(frozen=True, slots=True)
class RecordedHold:
    """A difference for which a table is held."""

    difference: Difference
    event_id: int
    held_at: datetime


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """What the ledger says. Everything is empty where no run has made the ledger."""

    tables: Mapping[TableName, RecordedTable]
    holds: Mapping[TableName, RecordedHold]
    """The oldest one of each held table."""
    alerts: Sequence[OpenAlert]
    """Of all subjects, the oldest first."""
    events: Sequence[DriftEvent]
    """Of the source."""
    switches: Sequence[InstanceSwitch]
    """Of the source; those that are under way."""


class StatusLedger(Protocol):
    """Reads the ledger as it is, and makes none where no run has made one."""

    def read_status(self, pipeline: str, source: str) -> StatusRecord:
        """Return what the ledger says of a pipeline. source: its name in the configuration."""
