"""The guards of an unfinished window: each removes tables from its plan that would prevent the others from finishing.

The rows of such a table are still at the source. A later window, or a load of the table alone, brings them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.snapshot import SourceSnapshot, Validity, Verdict
from floodmark.core.source.state import TableState
from floodmark.core.source.verdicts import GAPS, INCIDENTS, LEFT_OUT, incident
from floodmark.core.window.plan import LoadKind, WindowPlan
from floodmark.core.window.planning import classify_tables, has_changed, pinned_instances
from floodmark.sync.drift.watch import held_verdicts
from floodmark.sync.ports.drift_watch import DriftCheck, Examined
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.source import Source
from floodmark.sync.recovery.repair import Repairs
from floodmark.sync.window.origin import require_origin
from floodmark.sync.window.verify_reads import (
    classify_planned,
    classify_reads,
    planned_instances,
    planned_positions,
)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """The parts that the opening of a pipeline's next window works with."""

    settings: PipelineSettings
    source: Source
    ledger: Ledger
    drift: DriftCheck
    repairs: Repairs

    def examine(self, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]) -> Examined:
        """Compare a snapshot with the recorded shapes of the tables. Raises the errors of ``require_origin``."""
        require_origin(self.settings, snapshot, states, self.ledger)
        return self.drift.examine(self.settings, snapshot, states)

    def leave_out(self, plan: WindowPlan, tables: Sequence[TableName]) -> WindowPlan | None:
        """Return the plan without some tables; None where no table is left."""
        if not tables:
            return plan
        left = self.ledger.leave_out(plan.window_id, tables)
        # Where tables are left, the next load drops stale staging tables, and keeps the chunks of first loads.
        if left is None:
            self.drift.drop_staging(plan.window_id)
        return left


PlanGuard = Callable[[Opening, WindowPlan], WindowPlan | None]
"""A function that returns the plan without the tables that the guard removes; None where no table is left."""


def guard_plan(opening: Opening, plan: WindowPlan) -> WindowPlan | None:
    """Return the plan of a window that is still PLANNED after all guards. Raises the errors of the guards."""
    left: WindowPlan | None = plan
    for guard in GUARDS:
        if left is None:
            return None
        left = guard(opening, left)
    return left


def leave_out_removed(opening: Opening, plan: WindowPlan) -> WindowPlan | None:
    """Leave out the tables that are no longer in the configuration: an error in reading one would not be fixed."""
    removed = [table.source for table in plan.tables if table.source not in opening.settings.sources]
    for name in removed:
        _LOG.warning("Left out of window %s: %s is no longer in the configuration.", plan.window_id, name)
    return opening.leave_out(plan, removed)


def drop_refused(opening: Opening, plan: WindowPlan) -> bool:
    """Drop a merged window where the checks have refused all its tables. Return whether it was dropped.

    Their changes are merged again by a window that ends later, with what corrects the rows.
    """
    if len(_refused(opening, plan)) < len(plan.tables):
        return False
    _LOG.warning("Window %s was given up: the checks refused all its tables; they are planned again.", plan.window_id)
    opening.ledger.drop_merged(plan.window_id)
    opening.drift.drop_staging(plan.window_id)
    return True


def _refused(opening: Opening, plan: WindowPlan) -> list[TableName]:
    stopped = {each.table for each in opening.ledger.list_stopped(plan.pipeline) if each.verdict is Verdict.REFUSED}
    return [table.source for table in plan.tables if table.source in stopped]


def leave_out_refused(opening: Opening, plan: WindowPlan) -> WindowPlan | None:
    """Leave out the tables that the last load refused: their next window ends later, with what corrects their rows."""
    refused = _refused(opening, plan)
    for name in refused:
        _LOG.warning("Left out of window %s: %s was refused; it is planned again.", plan.window_id, name)
    return opening.leave_out(plan, refused)


def leave_out_unreadable(opening: Opening, plan: WindowPlan) -> WindowPlan | None:
    """Leave out the tables that drifted, then those that can no longer be read.

    One snapshot is enough for both, unless the plan reads other instances than the next one would, or a table for the
    first time: an instance is not recorded before.
    """
    settings = opening.settings
    states = opening.ledger.read_tables(settings.name)
    pinned = pinned_instances(settings, states)
    snapshot = opening.source.read_snapshot(settings.sources, pinned, planned_positions(plan))
    is_planned = planned_instances(plan).items() <= pinned.items()
    left = leave_out_drifted(opening, plan, snapshot, states)
    if left is None:
        return None
    return leave_out_gaps(opening, left, snapshot if is_planned else None, states)


def leave_out_drifted(
    opening: Opening, plan: WindowPlan, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
) -> WindowPlan | None:
    """Leave out the tables that drifted since the plan was made: held tables, and first loads of other columns."""
    settings = opening.settings
    examined = opening.examine(snapshot, states)
    held = [table.source for table in plan.tables if table.source in examined.holds]
    others = [table for table in plan.tables if table.source not in held]
    changed = [table.source for table in others if has_changed(table, examined.snapshot, settings)]
    if not held and not changed:
        return plan
    for name in changed:
        reason = "has other columns or another key now; it is planned again."
        _LOG.warning("Left out of window %s: %s %s", plan.window_id, name, reason)
    validities = held_verdicts(classify_tables(settings, examined.snapshot, states), examined.holds)
    out = [validity for validity in validities if validity.table in held]
    opening.ledger.record_verdicts(settings.name, out)
    for validity in out:
        _LOG.warning("Left out of window %s: %s", plan.window_id, validity)
    return opening.leave_out(plan, [*held, *changed])


def leave_out_gaps(
    opening: Opening, plan: WindowPlan, snapshot: SourceSnapshot | None, states: Mapping[TableName, TableState]
) -> WindowPlan | None:
    """Leave out the tables that can no longer be read. Raises the errors of ``verify_reads`` for other verdicts.

    snapshot: of the instances of the plan; None where they are still to be read.

    A plan whose end is no longer in the source's log is given up; whether the target has rows of the lost time is then
    determined by the watermarks. First loads whose changes no longer exist are planned again: they have lost nothing.
    """
    if snapshot is None:
        snapshot, validities = classify_reads(plan, opening.source)
    else:
        validities = classify_planned(plan, snapshot)
    validities = tuple(_with_target(opening, each, states) for each in validities)
    if rewound := [validity for validity in validities if validity.verdict is Verdict.AHEAD_OF_SOURCE]:
        _LOG.warning("Window %s was given up: %s", plan.window_id, rewound[0])
        return opening.leave_out(plan, [table.source for table in plan.tables])
    first = {table.source for table in plan.tables if table.kind is LoadKind.FIRST_LOAD}
    again = [validity for validity in validities if validity.table in first and validity.verdict in GAPS]
    gaps = [validity for validity in validities if validity not in again and validity.verdict in GAPS]
    unread = [validity for validity in validities if validity.verdict in LEFT_OUT - GAPS]
    for validity in (*again, *gaps, *unread):
        _LOG.warning("Left out of window %s: %s", plan.window_id, validity)
    left = opening.leave_out(plan, [validity.table for validity in (*again, *gaps, *unread)])
    name = opening.settings.name
    opening.ledger.record_verdicts(name, unread)
    if gaps:
        states = opening.ledger.read_tables(name)
        snapshot = opening.examine(snapshot, states).snapshot
        opening.ledger.record_verdicts(name, opening.repairs.leave_out(gaps, snapshot, states))
    if error := incident(name, tuple(each for each in validities if each not in (*again, *gaps, *unread))):
        raise error
    return left


def _with_target(opening: Opening, validity: Validity, states: Mapping[TableName, TableState]) -> Validity:
    """Return the verdict on a planned table, or that its target is lost where it could be read."""
    fault = states[validity.table].target_fault if validity.table in states else ""
    if not fault or validity.verdict in INCIDENTS:
        return validity
    hint = f"Reload the table (floodmark reload {opening.settings.name} {validity.table}, or on_gap: repair)."
    return replace(validity, verdict=Verdict.TARGET_LOST, cause=fault, hint=hint)


GUARDS: tuple[PlanGuard, ...] = (leave_out_removed, leave_out_refused, leave_out_unreadable)
