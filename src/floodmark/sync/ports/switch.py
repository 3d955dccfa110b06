"""The ports of a switch of capture instances.

Adapters: ``sources.cdc.instances``, ``postgres.ledger.switches``, ``postgres.warehouse.targets``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from floodmark.core.drift.switch import InstanceSwitch, PlannedSwitch
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.window.plan import TablePlan


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
