"""The part of a pipeline in a switch of capture instances: it switches to the second one, and loads the values that no
window brings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from floodmark.core.drift.shapes import stored
from floodmark.core.drift.switch import InstanceSwitch, SwitchedPipeline, asks_changes, may_switch, rows_to_fill
from floodmark.core.errors import ConfigError, OperatorError
from floodmark.core.policies import Backfill
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.source.scripts import filled_rows
from floodmark.core.source.snapshot import CaptureInstance, SourceSnapshot, TableSnapshot
from floodmark.core.source.state import TableState
from floodmark.core.window.lane import finishing_command
from floodmark.core.window.plan import TablePlan
from floodmark.core.window.planning import plan_table
from floodmark.sync.ports.drift import DriftSource
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.source import Source
from floodmark.sync.ports.switch import SwitchLedger, Targets

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SecondInstance:
    """The second instance of a switch, with a fresh snapshot of its table alone."""

    switch: InstanceSwitch
    snapshot: SourceSnapshot

    @property
    def table_snapshot(self) -> TableSnapshot:
        """The snapshot of the table."""
        return self.snapshot.tables[0]

    def without(self, lost: tuple[str, ...]) -> TableSnapshot:
        """Return the table without some columns. lost: columns that the instance captures and the source has
        dropped."""
        return replace(self.table_snapshot, instance=replace(self.instance, table=stored(self.instance.table, lost)))

    @property
    def instance(self) -> CaptureInstance:
        """The capture instance."""
        assert self.table_snapshot.instance is not None  # noqa: S101  (checked by the caller)
        return self.table_snapshot.instance


@dataclass(frozen=True, slots=True)
class SwitchReaders:
    """The pipelines that read the table of a switch."""

    source: Callable[[], Source]
    drift_source: Callable[[], DriftSource]
    targets: Targets
    open_load: Callable[[str, TableName, str], int]
    """Opens or finds the load of the rows of a pipeline's table for which a condition is true; returns the window's
    id."""
    ledger: Ledger
    switches: SwitchLedger

    def go_on(self, settings: PipelineSettings, table: TableSettings, second: SecondInstance) -> str:
        """Advance the pipeline as far as it can go now. Return what it still waits for, "" for nothing.

        Raises OperatorError or ConfigError where the operator has to act first.
        """
        switch = second.switch
        state = self.ledger.read_tables(settings.name).get(table.source)
        if state is None or state.identity is None:
            planned = [
                each.source for window in self.ledger.list_unfinished(settings.name) for each in window.plan.tables
            ]
            return f"{settings.name} has not finished its first load." if table.source in planned else ""
        if state.identity == switch.old:
            if waits := self._switch_pipeline(settings, table, second, state):
                return waits
            _LOG.info("%s: %s reads %s after %s.", switch.table, settings.name, switch.name, state.watermark)
        elif state.identity != switch.new:
            return ""
        return self._fill(settings, table, second)

    def _switch_pipeline(
        self, settings: PipelineSettings, table: TableSettings, second: SecondInstance, state: TableState
    ) -> str:
        switch, start = second.switch, second.table_snapshot.min_lsn
        if table.capture_instance is not None:
            raise OperatorError(
                f"{settings.name}, {switch.table}",
                f"its configuration names capture instance {table.capture_instance}.",
                "Remove capture_instance from pipelines.yaml.",
            )
        if not second.table_snapshot.permitted:
            raise OperatorError(
                str(switch.table),
                f"the login may not read the change table of {switch.name}.",
                "Grant the same permissions as on the first one: SELECT on the change table, and the gating role if "
                "there is one.",
            )
        if not isinstance(start, Position):
            return f"the capture job has not reached {switch.name} yet."
        if state.watermark is None or not may_switch(state.watermark, start):
            return f"{settings.name} reads {switch.old.name} up to {start} first; its watermark is {state.watermark}."
        # A target that could not take the new columns would stop every table of the pipeline from the next run on.
        self._check_target(settings, self._plan(table, second, self._lost(second)))
        if not self.switches.switch_pipeline(switch, settings.name, table.source, start):
            return f"{settings.name} switches when {self._holding(settings, table)} has been published."
        return ""

    def _holding(self, settings: PipelineSettings, table: TableSettings) -> str:
        """Name the unfinished windows with the table, and the commands that finish them.

        An unfinished replay would hold the table until it is repeated.
        """
        plans = [
            opened.plan
            for opened in self.ledger.list_unfinished(settings.name)
            if any(each.source == table.source for each in opened.plan.tables)
        ]
        named = [f"window {plan.window_id} ({finishing_command(settings.name, plan.lane)})" for plan in plans]
        return " and ".join(named) or "its window"

    def _fill(self, settings: PipelineSettings, table: TableSettings, second: SecondInstance) -> str:
        """Load the values of the new columns that no window of the second instance brings. Return what to wait for."""
        switch = second.switch
        current = next(
            each for each in self.switches.list_switches(switch.source) if each.switch_id == switch.switch_id
        )
        switched_away = current.of(settings.name)
        if switched_away is None or (switched_away.is_filled and self._read_all_touched(switched_away, second)):
            return ""
        window_id = switched_away.window_id
        if switched_away.window_state is None or switched_away.is_filled:
            lost = self._lost(second)
            left = tuple(name for name in switch.added if name not in lost)
            if not left:
                return ""
            plan = self._plan(table, second, lost)
            there = self._check_target(settings, plan)
            where = (
                filled_rows(left)
                if switched_away.is_filled
                else rows_to_fill(
                    switch,
                    left,
                    plan.feed.table.key,
                    table.backfill,
                    there=there,
                    has_all_changes=table.backfill is Backfill.TOUCHED and self._has_all_changes(second),
                )
            )
            window_id = self.open_load(settings.name, table.source, where)
            self.switches.record_backfill(switch.switch_id, settings.name, window_id)
        return f"{settings.name} reads {switch.name}; window {window_id} loads {', '.join(switch.added)}."

    def _read_all_touched(self, switched_away: SwitchedPipeline, second: SecondInstance) -> bool:
        """Return whether the load has read all rows that were touched.

        The load finds these rows by their changes. Cleanup may have deleted changes between its opening and its read.
        """
        assert switched_away.window_id is not None  # noqa: S101  (a window that is published has one)
        (loaded,) = self.ledger.read_window(switched_away.window_id).plan.tables
        return not asks_changes(loaded.where) or self._has_all_changes(second)

    def _lost(self, second: SecondInstance) -> tuple[str, ...]:
        name = second.instance.identity.name
        details = self.drift_source().read_drift({name: second.instance.table.name}).details.get(name)
        return details.lost if details else ()

    def _plan(self, table: TableSettings, second: SecondInstance, lost: tuple[str, ...]) -> TablePlan:
        """Plan a load by the second instance, with the columns of the coming windows. Raises ConfigError or
        NoKeyError."""
        return plan_table(table, second.without(lost), second.snapshot, None)

    def _check_target(self, settings: PipelineSettings, plan: TablePlan) -> frozenset[str]:
        """Return the columns of the target."""
        try:
            return self.targets.check_target(plan)
        except ConfigError as error:
            raise OperatorError(
                f"{settings.name}, {plan.source}",
                error.message,
                "If the column belongs to a dropped column of the source, rename it or drop it in the warehouse; else "
                "give it a type that holds the new values (ALTER TABLE ... ALTER COLUMN ... TYPE ... USING ...).",
            ) from None

    def _has_all_changes(self, second: SecondInstance) -> bool:
        """Return whether both change tables still hold every change since the new columns were added."""
        switch, start = second.switch, second.table_snapshot.min_lsn
        first = self.source().read_snapshot([switch.table], {switch.table: switch.old.name}).tables[0]
        if first.instance is None or first.instance.identity != switch.old:
            return False
        since = switch.since or first.instance.start_lsn
        is_whole = isinstance(first.min_lsn, Position) and first.min_lsn <= since
        return is_whole and isinstance(start, Position) and start <= second.instance.start_lsn
