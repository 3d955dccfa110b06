"""The ports of the watch for schema drift. Adapters: ``sources.cdc.drift``, ``postgres.ledger.drift``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from floodmark.core.drift.ddl import DdlEntry, Explained
from floodmark.core.drift.proposal import LivingInstance
from floodmark.core.drift.risk import RowsAtRisk
from floodmark.core.drift.shapes import TableShape
from floodmark.core.policies import DriftPolicy
from floodmark.core.position import Position
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.source.feed import InstanceIdentity


@dataclass(frozen=True, slots=True)
class TableDetails:
    """The details of a capture instance that a snapshot does not have."""

    lost: tuple[str, ...] = ()
    """See ``TableShape``."""
    uncaptured: tuple[SourceColumn, ...] = ()
    """See ``TableShape``."""
    history: tuple[DdlEntry, ...] = ()
    """The whole DDL history of the instance."""

    def captures(self, columns: Sequence[str]) -> bool:
        """Return whether the instance has all of these columns of the table."""
        return not {*self.lost, *(column.name for column in self.uncaptured)} & set(columns)


@dataclass(frozen=True, slots=True)
class DriftFacts:
    """The details of capture instances, read from the source."""

    details: Mapping[str, TableDetails]
    """The requested instances that exist, by name."""
    instances: tuple[LivingInstance, ...]
    """All capture instances that the login may see."""


class DriftSource(Protocol):
    """The details of a source's tables; one connection per call."""

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        """Return the details. asked: capture instances with their source tables; a missing one is left out."""

    def read_risk(self, table: TableName, instance: str, since: Position | None) -> RowsAtRisk:
        """Return the rows at risk of a column that the instance does not capture.

        since: the LSN of the column's DDL, None while it is not known.
        """


@dataclass(frozen=True, slots=True)
class KnownTable:
    """The recorded state of a table."""

    shape: TableShape
    absent: str | None = None
    """The class of the drift that removed the table, None while the table exists."""
    age_seconds: float | None = field(default=None, compare=False)
    """The time since its details were read; None where the ledger was not asked."""


@dataclass(frozen=True, slots=True)
class DriftEvent:
    """One event of the ledger."""

    event_id: int
    source: str
    table: TableName
    identity: InstanceIdentity
    explained: Explained
    policies: Mapping[str, DriftPolicy]
    """The policy of each pipeline that reads the table."""
    found_at: datetime
    held: tuple[str, ...] = ()
    """The pipelines in which the event holds the table."""
    proposal: str = ""
    """T-SQL, "" for none."""
    approved_at: datetime | None = None
    approved_by: str | None = None
    reported: bool = False
    """Whether the alert has been raised."""
    is_rejected: bool = False
    """Whether the proposal was rejected."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A table of a pipeline that is held because of an event."""

    pipeline: str
    table: TableName
    event: DriftEvent
    held_at: datetime


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """A difference to be written down, with the policy of each pipeline that reads the table. spelled: how each of them
    spells its name, by which it is held."""

    explained: Explained
    policies: Mapping[str, DriftPolicy] = field(default_factory=dict)
    proposal: str = ""
    spelled: Mapping[str, TableName] = field(default_factory=dict)
    """The table's name as each pipeline spells it. The pipeline's hold uses this name."""


class KnownTables(Protocol):
    """The tables as they were last seen, and what became of them."""

    def read_known(self, source: str) -> Mapping[tuple[TableName, str], KnownTable]:
        """Return the recorded tables, by table (see ``core.drift.table_names``) and name of the capture instance."""

    def record(
        self,
        source: str,
        table: TableName,
        known: KnownTable | None,
        seen: KnownTable,
        findings: Sequence[DriftFinding],
    ) -> bool:
        """Replace the known shape by the seen one, record the events, and hold the tables that they hold.

        Return False, and write nothing, where another process has recorded a new shape meanwhile.
        """

    def record_unchanged(self, source: str, table: TableName, instance: str) -> None:
        """Record that the details of a table were read, and that it is as it was known."""

    def end_absence(self, source: str, table: TableName, instance: str) -> Sequence[int]:
        """End the holds of the events that removed a table which exists again. Return these events."""

    def list_readers(self, instance: InstanceIdentity) -> Sequence[str]:
        """Return the pipelines whose watermarks belong to a capture instance."""


class DriftEvents(Protocol):
    """The events of drift, each written once."""

    def list_events(self, source: str | None = None) -> Sequence[DriftEvent]:
        """Return the events, the oldest first."""

    def explain_later(self, source: str, identity: InstanceIdentity, entry: DdlEntry) -> bool:
        """Add the statement to events that were found before the history had it. Return False where there is none."""

    def mark_reported(self, event_id: int) -> None:
        """Record that the alert about an event has been raised."""

    def replace_proposal(self, event_id: int, proposal: str) -> None:
        """Replace the proposal of an undecided event."""


class DriftDecisions(Protocol):
    """The holds of events, and what a person decided about them."""

    def list_holds(self, pipeline: str) -> Mapping[TableName, Hold]:
        """Return the held tables; of a table with several holds, the oldest hold."""

    def approve(self, event_id: int, by: str) -> DriftEvent:
        """Approve an event and end its holds. Raises OperatorError for an unknown event."""

    def reject(self, event_id: int, by: str) -> None:
        """Reject the proposal of an event. Nothing is written where the event is already decided."""

    def release(self, pipeline: str, table: TableName, by: str) -> Sequence[int]:
        """End every hold on a table of a pipeline. Events without another hold count as approved; return them."""


class DriftLedger(KnownTables, DriftEvents, DriftDecisions, Protocol):
    """The ledger of schema drift. All writes are transactions."""


def newest(entries: Sequence[DdlEntry]) -> Position | None:
    """Return the newest LSN of the history."""
    return max((entry.lsn for entry in entries), default=None)
