"""The ports of the ledger about schema drift: shapes, events, holds, and switches of capture instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from floodmark.core.drift.proposals import InstanceSwitch, LivingInstance, PlannedSwitch, RowsAtRisk
from floodmark.core.drift.shapes import DdlEntry, Explained, TableShape
from floodmark.core.plan import TablePlan
from floodmark.core.position import Position
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.settings import DriftPolicy, PipelineSettings
from floodmark.core.snapshot import InstanceIdentity, SourceSnapshot, TableState

# --------------------------------------------------------------------------------------------------------------------
# The ports of the watch for schema drift. Adapters: ``sources.cdc.operations``, ``postgres.ledger.drift``.


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
        """Return the recorded tables, by table (see ``core.drift.shapes``) and name of the capture instance."""

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


# --------------------------------------------------------------------------------------------------------------------
# ``DriftCheck``: the check for schema drift at the opening of a window.


@dataclass(frozen=True, slots=True)
class Examined:
    """A snapshot that was compared with the recorded shapes of the tables."""

    snapshot: SourceSnapshot
    """The snapshot without the columns that the tables have lost."""
    holds: Mapping[TableName, Hold]
    """The holds of the pipeline."""


class DriftCheck(Protocol):
    """A comparison of a pipeline's tables with their recorded shapes."""

    def examine(
        self, settings: PipelineSettings, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
    ) -> Examined:
        """Record what is new in a snapshot, and return it with the pipeline's holds."""

    def drop_staging(self, window_id: int) -> None:
        """Drop the staging tables of a window that is given up or planned again."""


class NoDriftCheck:
    """``DriftCheck`` that finds no drift, and leaves staging tables alone."""

    def examine(
        self, settings: PipelineSettings, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
    ) -> Examined:
        return Examined(snapshot, {})

    def drop_staging(self, window_id: int) -> None:
        """Do nothing."""


# --------------------------------------------------------------------------------------------------------------------
# The ports of a switch of capture instances.
#
# Adapters: ``sources.cdc.source``, ``postgres.ledger.drift``, ``postgres.warehouse.targets``.


class InstanceControl(Protocol):
    """The creation and removal of capture instances; needs db_owner.

    Each call opens its own connection. It raises TransientError after seconds where transactions use the table.
    """

    def make_instance(self, enabling: str) -> None:
        """Create an instance. enabling: the approved call of sys.sp_cdc_enable_table."""

    def drop_instance(self, table: TableName, instance: str) -> None:
        """Drop an instance."""


class Targets(Protocol):
    """The tables of the warehouse, read only."""

    def check_target(self, plan: TablePlan) -> frozenset[str]:
        """Return the columns of the plan's target, none where the table does not exist yet.

        Raises ConfigError where a window with this plan could not be merged into it.
        """


class Switches(Protocol):
    """The switches of capture instances that were approved."""

    def open_switch(self, planned: PlannedSwitch, event_ids: Sequence[int], by: str) -> InstanceSwitch:
        """Record a switch and approve its events. Raises OperatorError where a switch of the table is in progress."""

    def list_switches(self, source: str) -> Sequence[InstanceSwitch]:
        """Return the switches in progress, the oldest first."""

    def hold_switches(self, source: str) -> AbstractContextManager[bool]:
        """Keep other processes from taking steps during the block. Yields False where another process does so."""

    def mark_made(self, switch_id: int, new: InstanceIdentity | None) -> None:
        """Record the second instance. new: None where it no longer exists."""

    def finish(self, switch_id: int, *, given_up: bool = False) -> None:
        """End a switch. given_up: its events become undecided again."""


class SwitchedPipelines(Protocol):
    """The moment in which a pipeline switches, and the loads of its new columns."""

    def switch_pipeline(self, switch: InstanceSwitch, pipeline: str, table: TableName, start: Position) -> bool:
        """Make the pipeline's next window of the table read the second instance. table: as the pipeline spells it.

        Return False, and write nothing, while a window with the table is unfinished, or while its watermark is below
        ``start``.
        """

    def record_backfill(self, switch_id: int, pipeline: str, window_id: int) -> None:
        """Record the window that loads the new columns for a pipeline."""

    def list_readers(self, instance: InstanceIdentity) -> Sequence[str]:
        """Return the pipelines that read the instance, or an instance of another source with the same identity.

        Pipelines that are no longer in a configuration are included.
        """


class SwitchLedger(Switches, SwitchedPipelines, Protocol):
    """The ledger of switches. All writes are transactions."""
