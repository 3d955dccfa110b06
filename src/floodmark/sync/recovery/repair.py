"""Repairs: a table with a gap is left out of the windows of its pipeline, and a window on its own lane reloads it.

A table that was added to a pipeline is loaded in the same way, where its configuration says so. The window is only
opened here; the DAG ``cdc_load_<pipeline>``, or ``floodmark reload``, does the work. The other tables continue
meanwhile, and the old rows of the table stay readable.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from floodmark.core.errors import ConfigError, NoKeyError
from floodmark.core.policies import OnGap, WhenAdded
from floodmark.core.position import Position
from floodmark.core.recovery.gap import Gap, build_gap, build_repair_alert, repair_key, repairing
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.snapshot import SourceSnapshot, Validity, Verdict
from floodmark.core.source.state import TableState
from floodmark.core.source.verdicts import GAPS
from floodmark.core.window.chunks import LoadProgress
from floodmark.core.window.lane import is_load_lane, load_lane
from floodmark.core.window.measures import NO_MEASURES, measure_plan
from floodmark.core.window.plan import TablePlan, WindowPlan
from floodmark.core.window.planning import not_plannable, plan_reload
from floodmark.sync.alerts import Alerts, NoAlerts
from floodmark.sync.ports.ledger import Ledger, OpenedWindow

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Repairs:
    """The repairs of one pipeline."""

    settings: PipelineSettings
    ledger: Ledger
    alerts: Alerts = field(default_factory=NoAlerts)

    def list_loads(self) -> dict[TableName, OpenedWindow]:
        """Return the unfinished loads, by source table, the oldest first."""
        opened = self.ledger.list_unfinished(self.settings.name)
        return {window.plan.tables[0].source: window for window in opened if is_load_lane(window.plan.lane)}

    def leave_out(
        self, validities: Sequence[Validity], snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
    ) -> tuple[Validity, ...]:
        """Return the verdicts, with ``repairing`` for the tables that are being reloaded; open the missing loads."""
        loads = self.list_loads()
        left = []
        for validity in validities:
            window, state = loads.get(validity.table), states.get(validity.table)
            if window is not None:
                left.append(self._under_way(validity, window, snapshot, state))
            elif self.is_to_repair(validity):
                left.append(self._repaired(validity, snapshot, state))
            elif self._is_added(validity, states):
                left.append(self._loaded_in_parallel(validity, snapshot, state))
            else:
                left.append(validity)
        return tuple(left)

    def is_to_repair(self, validity: Validity) -> bool:
        """Return whether the table has a gap and its policy is to repair it."""
        policies = {table.source: table.on_gap for table in self.settings.tables}
        return validity.verdict in GAPS and policies.get(validity.table) is OnGap.REPAIR

    def _is_added(self, validity: Validity, states: Mapping[TableName, TableState]) -> bool:
        """Return whether the table is to be loaded in parallel to others that have been loaded."""
        if validity.verdict is not Verdict.NOT_STARTED:
            return False
        in_parallel = {
            each.source for each in self.settings.tables if each.first_load_when_added is WhenAdded.IN_PARALLEL
        }
        loaded = {name for name, state in states.items() if state.watermark is not None}
        return validity.table in in_parallel and not loaded.isdisjoint(self.settings.sources)

    def open(
        self, table: TablePlan, snapshot: SourceSnapshot, state: TableState | None, validity: Validity
    ) -> WindowPlan:
        """Open a window on the table's load lane; record and report a gap. Raises WindowBusyError."""
        assert isinstance(snapshot.max_lsn, Position)  # noqa: S101  (checked by plan_reload)
        name = self.settings.name
        gap = None
        if validity.verdict in GAPS and not table.where:
            gap = _find_gap(validity, snapshot, state)
            # The gap is recorded before the window: where a run dies in between, the table is unchanged.
            self.ledger.record_gap(name, gap, table.watermark)
        # A load of some rows moves no watermark.
        measures = NO_MEASURES if table.where else measure_plan(snapshot)
        lane = load_lane(table.source)
        plan = self.ledger.open_window(name, snapshot.max_lsn, [table], snapshot.max_lsn_at, lane, measures=measures)
        _LOG.info("Window %s opened on lane %s, up to %s.", plan.window_id, plan.lane, plan.to_lsn)
        if gap is not None:
            self._report(gap, plan)
        return plan

    def _under_way(
        self, validity: Validity, window: OpenedWindow, snapshot: SourceSnapshot, state: TableState | None
    ) -> Validity:
        plan = window.plan
        if validity.verdict in GAPS and not plan.tables[0].where:
            # Report it again for the channels that the run which opened the window could not notify.
            self._report(_find_gap(validity, snapshot, state), plan)
        return describe_load(validity, window, self.ledger.read_load_progress(plan.window_id).get(validity.table))

    def _report(self, gap: Gap, plan: WindowPlan) -> None:
        self.alerts.raise_alert(build_repair_alert(self.settings.name, gap, plan.window_id))

    def _plan(self, table: TableName, snapshot: SourceSnapshot, state: TableState | None) -> TablePlan | Validity:
        settings = next(each for each in self.settings.tables if each.source == table)
        table_snapshot = next(each for each in snapshot.tables if each.table == table)
        try:
            return plan_reload(settings, table_snapshot, snapshot, state)
        except (ConfigError, NoKeyError) as error:
            return not_plannable(Validity(table, Verdict.NOT_PLANNABLE, ""), error)

    def _loaded_in_parallel(self, validity: Validity, snapshot: SourceSnapshot, state: TableState | None) -> Validity:
        planned = self._plan(validity.table, snapshot, state)
        if isinstance(planned, Validity):
            return planned
        try:
            plan = self.open(planned, snapshot, state, validity)
        except ConfigError as error:  # about its target: the others go on
            return not_plannable(validity, error)
        cause = f"window {plan.window_id} loads it for the first time, in parallel to the others: {_who_loads(plan)}"
        _LOG.warning("%s: %s", validity.table, cause)
        return repairing(validity, cause, is_first=True)

    def _repaired(self, validity: Validity, snapshot: SourceSnapshot, state: TableState | None) -> Validity:
        planned = self._plan(validity.table, snapshot, state)
        if isinstance(planned, Validity) and planned.verdict is Verdict.NOT_PLANNABLE:
            return replace(planned, watermark=validity.watermark)
        if isinstance(planned, Validity):
            cause = f"{validity.verdict.value}: {validity.cause} The repair waits: {planned.cause}"
            return repairing(validity, cause)
        try:
            plan = self.open(planned, snapshot, state, validity)
        except ConfigError as error:  # about its target: the others go on
            return not_plannable(validity, error)
        found = f"{validity.verdict.value}: {validity.cause}"
        _LOG.warning("%s: %s Window %s reloads it.", validity.table, found, plan.window_id)
        return repairing(validity, f"window {plan.window_id} reloads it. It was {found}")


def _find_gap(validity: Validity, snapshot: SourceSnapshot, state: TableState | None) -> Gap:
    table_snapshot = next(each for each in snapshot.tables if each.table == validity.table)
    return build_gap(validity, table_snapshot, snapshot, state)


def describe_load(validity: Validity, window: OpenedWindow, progress: LoadProgress | None) -> Validity:
    """Return the verdict on a table that an unfinished window loads in parallel to the others."""
    plan = window.plan
    done = f"{progress} are staged." if progress else f"its reading has not begun. {_who_loads(plan)}"
    where, is_first = plan.tables[0].where, plan.tables[0].watermark is None
    what = f"loads the rows where {where}" if where else "loads it for the first time" if is_first else "reloads it"
    return repairing(validity, f"window {plan.window_id} ({window.state.value}) {what}: {done}", is_first=is_first)


def _who_loads(plan: WindowPlan) -> str:
    return f"The DAG cdc_load_{plan.pipeline} does it, or floodmark reload {plan.pipeline} {plan.tables[0].source}."


def end_repair(plan: WindowPlan, alerts: Alerts) -> None:
    """End the alert about a repair after its window has been published. Harmless for any other window."""
    if is_load_lane(plan.lane) and not plan.tables[0].where:
        alerts.end_alert(repair_key(plan.pipeline, plan.tables[0].source))
