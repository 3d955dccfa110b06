"""``StatusLedger``: all records of the ledger about a pipeline, read at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from floodmark.core.drift.shapes import Difference
from floodmark.core.drift.switch import InstanceSwitch
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import Verdict
from floodmark.core.status.history import QuarantinedKey, RuleCount, TableHistory
from floodmark.core.status.report import LastWindow
from floodmark.sync.alerts import OpenAlert
from floodmark.sync.ports.drift import DriftEvent


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """The recorded state of a table of a pipeline."""

    watermark: Position | None
    watermark_at: datetime | None
    consistent: bool
    verdict: Verdict | None
    cause: str
    hint: str
    verdict_since: datetime | None
    verdict_seen_at: datetime | None
    windows: int
    """The number of published windows, without replays. The row counts are totals over these windows."""
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
    """The content of the ledger. Everything is empty where no run has created the ledger."""

    tables: Mapping[TableName, RecordedTable]
    holds: Mapping[TableName, RecordedHold]
    """The oldest hold of each held table."""
    alerts: Sequence[OpenAlert]
    """The open alerts about all subjects, the oldest first."""
    events: Sequence[DriftEvent]
    """The drift events of the source."""
    switches: Sequence[InstanceSwitch]
    """The switches of the source that are in progress."""


class StatusLedger(Protocol):
    """A reader of the ledger that does not create one."""

    def read_status(self, pipeline: str, source: str) -> StatusRecord:
        """Return the record of a pipeline. source: the name of its source in the configuration."""

    def read_history(self, pipeline: str, table: TableName, at_most: int) -> TableHistory:
        """Return the last windows, gaps and quarantined rules of a table, without its drift. Empty without a ledger."""

    def list_quarantined(self, pipeline: str) -> Sequence[RuleCount]:
        """Return what is in quarantine, the newest first. Empty without a ledger."""

    def list_quarantined_keys(
        self, pipeline: str, table: TableName, rule: str | None, *, skipped: int, at_most: int
    ) -> Sequence[QuarantinedKey]:
        """Return rows of a table in quarantine, the newest first. rule: only of this one. Empty without a ledger."""
