"""What a switch of capture instances needs from the outside. Adapters: ``sqlserver.instances``,
``ledger.switches``, ``warehouse.targets``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from floodmark.core.drift.switch import InstanceSwitch, PlannedSwitch
from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import InstanceIdentity
from floodmark.core.window.plan import TablePlan


class InstanceControl(Protocol):
    """Makes and drops capture instances; asks for db_owner. Each call is a connection of its own, and gives up after
    seconds where transactions use the table: TransientError."""

    def make_instance(self, enabling: str) -> None:
        """enabling: the approved call of sys.sp_cdc_enable_table."""

    def drop_instance(self, table: TableName, instance: str) -> None: ...


class Targets(Protocol):
    """The tables of the warehouse, to be asked only."""

    def check_target(self, plan: TablePlan) -> frozenset[str]:
        """The columns of the plan's target, none where there is no such table yet.

        Raises ConfigError where a window with this plan could not be merged into it."""


class SwitchLedger(Protocol):
    """Switches, and which pipelines have gone over. All writes are transactions."""

    def open_switch(self, planned: PlannedSwitch, event_ids: Sequence[int], by: str) -> InstanceSwitch:
        """The events count as approved. Raises OperatorError where a switch of the table is under way."""

    def list_switches(self, source: str) -> Sequence[InstanceSwitch]:
        """Those under way, the oldest first."""

    def hold_switches(self, source: str) -> AbstractContextManager[bool]:
        """For the length of the block nobody else takes steps; False where somebody does."""

    def mark_made(self, switch_id: int, new: InstanceIdentity | None) -> None:
        """None: it is gone again."""

    def switch_pipeline(self, switch: InstanceSwitch, pipeline: str, table: TableName, start: Lsn) -> bool:
        """The pipeline's next window of the table reads the second instance. False, and nothing is written, while a
        window with the table is unfinished, or its watermark is below ``start``. table: as the pipeline spells it."""

    def record_backfill(self, switch_id: int, pipeline: str, window_id: int) -> None: ...

    def list_readers(self, instance: InstanceIdentity) -> Sequence[str]:
        """The pipelines that read it, or one of another source that is the same in all of this; also those that no
        configuration names any more."""

    def finish(self, switch_id: int, *, given_up: bool = False) -> None:
        """Of one that is given up the events are to be decided again."""
