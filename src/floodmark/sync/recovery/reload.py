"""The first step of a load in parallel to the windows: continue an unfinished one, or plan a requested one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from floodmark.core.errors import ConfigError, FloodmarkError, NotCapturedYetError, OperatorError, TableHeldError
from floodmark.core.policies import DriftClass
from floodmark.core.recovery.gap import repair_key
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.source.snapshot import Validity, Verdict
from floodmark.core.source.verdicts import GAPS, incident
from floodmark.core.window.plan import WindowPlan, WindowState
from floodmark.core.window.planning import classify_tables, has_changed, known_positions, pinned_instances, plan_reload
from floodmark.sync.alerts import Alerts, NoAlerts
from floodmark.sync.drift.watch import held_verdicts
from floodmark.sync.ports.drift_watch import DriftCheck, NoDriftCheck
from floodmark.sync.ports.ledger import Ledger, OpenedWindow
from floodmark.sync.ports.source import Source
from floodmark.sync.ports.warehouse import Warehouse
from floodmark.sync.recovery.repair import Repairs
from floodmark.sync.window.opened import OpenResult
from floodmark.sync.window.origin import require_origin
from floodmark.sync.window.retry import retry_on_conflict
from floodmark.sync.window.verify_reads import classify_reads

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadPlanner:
    """Opens loads of single tables of a pipeline."""

    settings: PipelineSettings
    source: Source
    ledger: Ledger
    warehouse: Warehouse
    drift: DriftCheck = field(default_factory=NoDriftCheck)
    alerts: Alerts = field(default_factory=NoAlerts)

    def open_pending(self) -> OpenResult:
        """Return an unfinished load: of several, the one with the fewest attempts, so that a load that always fails
        does not block the others. It costs one statement in the ledger where there is none."""
        self.ledger.ensure_schema()
        loads = self._without_removed(self._repairs.list_loads())
        if not loads:
            return OpenResult(None, "no table of the pipeline is to be reloaded.")
        failed: list[FloodmarkError] = []
        for opened in sorted(loads.values(), key=lambda each: (each.plan.attempt, each.plan.window_id)):
            try:
                return self._go_on(opened)
            except FloodmarkError as error:
                _LOG.error("Window %s cannot continue: %s", opened.plan.window_id, error)
                failed.append(error)
        raise failed[0]

    def open_reload(self, name: TableName, where: str = "") -> OpenResult:
        """Reload a table, completely or the rows for which ``where`` (checked T-SQL) is true; or continue such a load.

        Raises WindowBusyError while a window of the pipeline holds the table, TableHeldError while a drift holds it,
        and the errors of ``open_window`` where the table cannot be read.
        """
        self.ledger.ensure_schema()
        table = self._find(name)
        return retry_on_conflict(lambda: self._reload(table, where))

    def give_up(self, name: TableName) -> int:
        """Drop the unfinished load of a table that is not merged, or that its checks have refused. Return its window.

        The table joins the next window of the pipeline, where its log has no gap. Raises OperatorError without such a
        load, WindowBusyError while it runs.
        """
        self.ledger.ensure_schema()
        table = self._find(name).source
        opened = self._repairs.list_loads().get(table)
        if opened is None:
            raise OperatorError(str(table), "no load of it is unfinished, so nothing was given up.")
        window_id = opened.plan.window_id
        if opened.state is not WindowState.PLANNED and not opened.is_refused:
            raise OperatorError(
                str(table),
                f"window {window_id} is {opened.state.value}, so its rows are in the target already.",
                f"Finish it (floodmark reload {self.settings.name} {table}).",
            )
        with self.ledger.hold_load(window_id):
            self._drop(opened)
        _LOG.warning("Window %s, a load of %s, was given up on request.", window_id, table)
        return window_id

    def _drop(self, opened: OpenedWindow) -> None:
        table = opened.plan.tables[0].source
        self._drop_window(opened)
        self.alerts.end_alert(repair_key(self.settings.name, table))

    def _drop_window(self, opened: OpenedWindow) -> None:
        """Drop a load of which nothing is merged, or which the checks have refused."""
        window_id = opened.plan.window_id
        self.warehouse.drop_staging(window_id)
        if opened.is_refused:
            self.ledger.drop_merged(window_id)
        else:
            self.ledger.leave_out(window_id, [opened.plan.tables[0].source])

    def _reload(self, table: TableSettings, where: str) -> OpenResult:
        unfinished = self._repairs.list_loads().get(table.source)
        if unfinished is not None:
            known = unfinished.plan.tables[0].where
            if where not in ("", known):
                raise OperatorError(
                    str(table.source),
                    f"window {unfinished.plan.window_id} is unfinished and loads "
                    + (f"the rows where {known}." if known else "the whole table."),
                    f"Finish it (floodmark reload {self.settings.name} {table.source}), then load the other rows.",
                )
            return self._go_on(unfinished)
        self._free(table.source)
        return self._plan(table, where)

    def _without_removed(self, loads: dict[TableName, OpenedWindow]) -> dict[TableName, OpenedWindow]:
        """Give up the loads of tables that are no longer in the configuration, unless they are already merged."""
        kept = {}
        for table, opened in loads.items():
            is_merged = opened.state is not WindowState.PLANNED and not opened.is_refused
            if table in self.settings.sources or is_merged:
                kept[table] = opened
                continue
            _LOG.warning("Window %s was given up: %s is no longer in the configuration.", opened.plan.window_id, table)
            self._drop(opened)
        return kept

    @property
    def _repairs(self) -> Repairs:
        return Repairs(self.settings, self.ledger, self.alerts)

    def _find(self, name: TableName) -> TableSettings:
        wanted = str(name).casefold()
        for table in self.settings.tables:
            if str(table.source).casefold() == wanted:
                return table
        there = ", ".join(map(str, self.settings.sources))
        raise ConfigError(self.settings.name, f"it has no table {name}.", f"Its tables: {there}.")

    def _free(self, table: TableName) -> None:
        """Remove a table from a window of the pipeline that cannot be finished with it, by a gap or a refusal."""
        opened = self.ledger.unfinished_window(self.settings.name)
        if opened is None or opened.state is not WindowState.PLANNED:
            return
        if all(planned.source != table for planned in opened.plan.tables):
            return
        if any(each.table == table for each in self._list_refused()):
            _LOG.warning("Left out of window %s: %s was refused by its last load.", opened.plan.window_id, table)
            self.ledger.leave_out(opened.plan.window_id, [table])
            return
        _, validities = classify_reads(opened.plan, self.source)
        if any(validity.table == table and validity.verdict in GAPS for validity in validities):
            _LOG.warning("Left out of window %s: %s can no longer be read.", opened.plan.window_id, table)
            self.ledger.leave_out(opened.plan.window_id, [table])

    def _list_refused(self) -> list[Validity]:
        return [each for each in self.ledger.list_stopped(self.settings.name) if each.verdict is Verdict.REFUSED]

    def _plan(self, table: TableSettings, where: str) -> OpenResult:
        states = self.ledger.read_tables(self.settings.name)
        pinned = pinned_instances(self.settings, states)
        marks = self.ledger.list_marks(self.settings.name)
        snapshot = self.source.read_snapshot(
            self.settings.sources, pinned, known_positions(states), marks, (table.source,)
        )
        require_origin(self.settings, snapshot, states, self.ledger)
        validities = classify_tables(self.settings, snapshot, states)
        examined = self.drift.examine(self.settings, snapshot, states)
        snapshot = examined.snapshot
        # A load resolves the hold of this drift.
        holds = {
            held: hold
            for held, hold in examined.holds.items()
            if hold.event.explained.difference.kind is not DriftClass.INSTANCE_REPLACED
        }
        validities = held_verdicts(validities, holds)
        validity = next(each for each in validities if each.table == table.source)
        state = states.get(table.source)
        if validity.verdict is Verdict.HELD:
            raise TableHeldError(str(table.source), f"held: {validity.cause}", validity.hint)
        if where and (state is None or state.watermark is None or validity.verdict in GAPS):
            why = "it has not been loaded yet" if validity.verdict not in GAPS else f"it is {validity.verdict.value}"
            raise OperatorError(str(table.source), f"{why}; a partial load is not enough.", "Load the whole table.")
        table_snapshot = next(each for each in snapshot.tables if each.table == table.source)
        planned = plan_reload(table, table_snapshot, snapshot, state, where)
        if isinstance(planned, Validity):
            raise incident(self.settings.name, (planned,)) or NotCapturedYetError(str(table.source), planned.cause)
        plan = self._repairs.open(planned, snapshot, state, validity)
        return OpenResult(plan.window_id, "a new window", WindowState.PLANNED, plan.to_lsn)

    def _has_changed(self, plan: WindowPlan) -> bool:
        states = self.ledger.read_tables(self.settings.name)
        snapshot = self.source.read_snapshot(self.settings.sources, pinned_instances(self.settings, states))
        require_origin(self.settings, snapshot, states, self.ledger)
        examined = self.drift.examine(self.settings, snapshot, states)
        return has_changed(plan.tables[0], examined.snapshot, self.settings)

    def _replan(self, plan: WindowPlan) -> OpenResult:
        """Plan a load again whose table has other columns now, so that the old plan can never be read."""
        table = plan.tables[0]
        _LOG.warning("Window %s was given up: %s has other columns now.", plan.window_id, table.source)
        self.warehouse.drop_staging(plan.window_id)
        self.ledger.leave_out(plan.window_id, [table.source])
        if table.where:
            # The condition may name a column that no longer exists.
            raise OperatorError(
                str(table.source),
                f"window {plan.window_id}, which was to load the rows where {table.where}, was "
                "given up: the table has other columns now.",
                "Request the rows again.",
            )
        return self._plan(self._find(table.source), "")

    def _go_on(self, opened: OpenedWindow) -> OpenResult:
        plan, table = opened.plan, opened.plan.tables[0]
        if opened.is_refused:
            _LOG.warning("Window %s was given up: its checks refused it; the table is read again.", plan.window_id)
            self._drop_window(opened)
            return self._plan(self._find(table.source), table.where)
        if opened.state is WindowState.PLANNED:
            _, validities = classify_reads(plan, self.source)
            if validities[0].verdict in GAPS:
                # Changes since it began are gone as well: the following windows can no longer continue from its end.
                _LOG.warning("Window %s was given up: %s", plan.window_id, validities[0])
                self.warehouse.drop_staging(plan.window_id)
                self.ledger.leave_out(plan.window_id, [table.source])
                return self._plan(self._find(table.source), table.where)
            if error := incident(self.settings.name, validities):
                raise error
            if self._has_changed(plan):
                return self._replan(plan)
            rules = {each.source: each.rules for each in self.settings.tables}
            self.ledger.replace_rules(plan.window_id, rules)
        reason = f"window {plan.window_id} on lane {plan.lane} is unfinished: {opened.state.value}."
        _LOG.info("%s This run continues it.", reason)
        return OpenResult(plan.window_id, reason, opened.state, plan.to_lsn)
