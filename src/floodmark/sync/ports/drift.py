"""What watching for schema drift needs from the outside. Adapters: ``sqlserver.drift``, ``ledger.drift``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from floodmark.core.drift.ddl import DdlEntry, Explained
from floodmark.core.drift.proposal import LivingInstance
from floodmark.core.drift.risk import RowsAtRisk
from floodmark.core.drift.shapes import TableShape
from floodmark.core.lsn import Lsn
from floodmark.core.policies import DriftPolicy
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.source.snapshot import InstanceIdentity


@dataclass(frozen=True, slots=True)
class TableDetails:
    """What one look at a capture instance tells beyond a snapshot.

    lost, uncaptured: as in ``TableShape``. history: all of its DDL history.
    """

    lost: tuple[str, ...] = ()
    uncaptured: tuple[SourceColumn, ...] = ()
    history: tuple[DdlEntry, ...] = ()

    def captures(self, columns: Sequence[str]) -> bool:
        """Whether the instance has all of these columns of the table."""
        return not {*self.lost, *(column.name for column in self.uncaptured)} & set(columns)


@dataclass(frozen=True, slots=True)
class DriftFacts:
    """details: of the instances that were asked for and are there, by name. instances: every capture instance that the
    login may see."""

    details: Mapping[str, TableDetails]
    instances: tuple[LivingInstance, ...]


class DriftSource(Protocol):
    """The closer look at a source; one connection."""

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        """asked: capture instances with their source tables. One that is gone meanwhile is left out."""

    def read_risk(self, table: TableName, instance: str, since: Lsn | None) -> RowsAtRisk:
        """Of a column that the instance does not capture. since: the LSN of its DDL, None while it is not known."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """absent: the class of the drift that took the table away, None while it is there."""

    shape: TableShape
    absent: str | None = None


@dataclass(frozen=True, slots=True)
class DriftEvent:
    """One event of the ledger. policies: by pipeline that reads the table. held: the pipelines that it holds up.
    proposal: T-SQL, "" for none. told: whether the alert has been raised. is_rejected: the proposal was turned down."""

    event_id: int
    source: str
    table: TableName
    identity: InstanceIdentity
    explained: Explained
    policies: Mapping[str, DriftPolicy]
    found_at: datetime
    held: tuple[str, ...] = ()
    proposal: str = ""
    approved_at: datetime | None = None
    approved_by: str | None = None
    reported: bool = False
    is_rejected: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """A table of a pipeline that stands still because of an event."""

    pipeline: str
    table: TableName
    event: DriftEvent
    held_at: datetime


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference to be written down, with the policy of each pipeline that reads the table. spelled: how each of them
    spells its name, by which it is held."""

    explained: Explained
    policies: Mapping[str, DriftPolicy] = field(default_factory=dict)
    proposal: str = ""
    spelled: Mapping[str, TableName] = field(default_factory=dict)


class DriftLedger(Protocol):
    """What was last seen of each table, what has happened since, and which tables are held. All writes are
    transactions."""

    def read_known(self, source: str) -> Mapping[tuple[TableName, str], KnownTable]:
        """By table (see ``core.spelling``) and name of the capture instance."""

    def record(
        self,
        source: str,
        table: TableName,
        known: KnownTable | None,
        seen: KnownTable,
        findings: Sequence[Finding],
    ) -> bool:
        """Replace what is known by what was seen, write the events, and hold the tables that they hold.

        False, and nothing is written, when somebody else has meanwhile seen it: the events are theirs.
        """

    def list_readers(self, instance: InstanceIdentity) -> Sequence[str]:
        """The pipelines whose watermarks are of a capture instance."""

    def explain_later(self, source: str, identity: InstanceIdentity, entry: DdlEntry) -> bool:
        """Give the statement to events that were found before the history told of it. False: there is none."""

    def mark_reported(self, event_id: int) -> None: ...

    def list_events(self, source: str | None = None) -> Sequence[DriftEvent]:
        """The oldest first."""

    def list_holds(self, pipeline: str) -> Mapping[TableName, Hold]:
        """Of a table that is held more than once, the oldest hold."""

    def approve(self, event_id: int, by: str) -> DriftEvent:
        """Somebody has seen the event: the holds of it end. Raises OperatorError for an unknown one."""

    def reject(self, event_id: int, by: str) -> None:
        """Somebody turns its proposal down. Nothing is written where it has been decided already."""

    def replace_proposal(self, event_id: int, proposal: str) -> None:
        """As long as nobody has decided about it."""

    def release(self, pipeline: str, table: TableName, by: str) -> Sequence[int]:
        """End every hold on a table of a pipeline; the events whose last hold that was count as approved."""

    def end_absence(self, source: str, table: TableName, instance: str) -> Sequence[int]:
        """The table is back: end the holds of the events that took it away. Returns these events."""


def newest(entries: Sequence[DdlEntry]) -> Lsn | None:
    """Up to where the history has been seen."""
    return max((entry.lsn for entry in entries), default=None)
