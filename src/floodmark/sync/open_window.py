"""The first step of a run: continue the unfinished window, or plan the next one from a snapshot of the source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.core.capture import PlannedStop
from floodmark.core.errors import ConfigError, TableHeldError, command_line
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan, WindowState
from floodmark.core.planning import (
    AdvanceQuiet,
    Decision,
    Fail,
    Open,
    Skip,
    classify_tables,
    decide,
    has_changed,
    known_positions,
    not_plannable,
    pinned_feeds,
    plan_tables,
)
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.snapshot import SourceSnapshot, TableState, Validity, Verdict
from floodmark.core.types import list_losses
from floodmark.core.verdicts import GAPS, INCIDENTS, LEFT_OUT, incident
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports import Source
from floodmark.sync.records import DriftCheck, Examined, NoDriftCheck
from floodmark.sync.repair import Repairs
from floodmark.sync.upkeep import report_lag
from floodmark.sync.window import (
    OpenResult,
    classify_planned,
    classify_reads,
    follow_database,
    held_verdicts,
    planned_feeds,
    planned_positions,
    require_origin,
    retry_on_conflict,
)

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The guards of an unfinished window: each removes tables from its plan that would prevent the others from finishing.
#
# The rows of such a table are still at the source. A later window, or a load of the table alone, brings them.


@dataclass(frozen=True, slots=True)
class Opening:
    """The parts that the opening of a pipeline's next window works with."""

    settings: PipelineSettings
    source: Source
    ledger: PostgresLedger
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
    pinned = pinned_feeds(settings, states)
    snapshot = opening.source.read_snapshot(settings.sources, pinned, planned_positions(plan))
    is_planned = planned_feeds(plan).items() <= pinned.items()
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

    snapshot: of the feeds of the plan; None where they are still to be read.

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
    hint = f"Reload the table ({command_line('reload', opening.settings.name, validity.table)}, or on_gap: repair)."
    return replace(validity, verdict=Verdict.TARGET_LOST, cause=fault, hint=hint)


GUARDS: tuple[PlanGuard, ...] = (leave_out_removed, leave_out_refused, leave_out_unreadable)


# --------------------------------------------------------------------------------------------------------------------


def open_window(
    settings: PipelineSettings,
    source: Source,
    ledger: PostgresLedger,
    drift: DriftCheck | None = None,
    planned_stop: PlannedStop | None = None,
    *,
    alerts: Alerts | None = None,
) -> OpenResult:
    """Return the unfinished window of a pipeline, or open the next one.

    It runs at most two statements at the source, and a few more where a table differs from its recorded shape.

    planned_stop: the current planned stop of the capture job; a job that does not run is then no incident.

    Raises the error of the gravest verdict, which names all tables concerned. Tables that a schema drift holds are left
    out; TableHeldError where all are held. Tables that are loaded on their own lane are left out too; where their
    policy says so, a gap opens such a load (see ``repair``) and raises an alert. Other gaps raise an error only where
    no table with changes is left; otherwise they are reported at the end of the run (see ``gaps``). When another run
    was faster, it begins again.
    """
    ledger.ensure_schema()
    repairs = Repairs(settings, ledger, alerts or Alerts())
    opening = Opening(settings, source, ledger, drift or NoDriftCheck(), repairs)
    return retry_on_conflict(lambda: _open(opening, planned_stop))


def _open(opening: Opening, planned_stop: PlannedStop | None) -> OpenResult:
    return _continue_unfinished(opening) or _open_next(opening, planned_stop)


def _continue_unfinished(opening: Opening) -> OpenResult | None:
    """Return the window that an earlier run began; None where there is none, or where it has no table left."""
    unfinished = opening.ledger.unfinished_window(opening.settings.name)
    if unfinished is None:
        return None
    if unfinished.state is WindowState.MERGED and drop_refused(opening, unfinished.plan):
        return None
    if unfinished.state is not WindowState.PLANNED:
        return _go_on(opening, unfinished.plan, unfinished.state)
    plan = guard_plan(opening, unfinished.plan)
    return None if plan is None else _go_on(opening, plan, unfinished.state)


def _open_next(opening: Opening, planned_stop: PlannedStop | None) -> OpenResult:
    settings, ledger = opening.settings, opening.ledger
    states = ledger.read_tables(settings.name)
    pinned = pinned_feeds(settings, states)
    marks = ledger.list_marks(settings.name)
    snapshot = opening.source.read_snapshot(settings.sources, pinned, known_positions(states), marks)
    _log_snapshot(snapshot)
    examined = opening.examine(snapshot, states)
    snapshot = examined.snapshot
    validities = held_verdicts(classify_tables(settings, snapshot, states, planned_stop), examined.holds)
    validities, plans = plan_tables(settings, snapshot, states, validities)
    validities = opening.repairs.leave_out(validities, snapshot, states)
    _log_validities(validities, states)
    ledger.record_verdicts(settings.name, validities)
    follow_database(settings.name, snapshot, ledger)
    report_lag(settings.name, validities, opening.repairs.alerts)
    if validities and all(validity.verdict is Verdict.HELD for validity in validities):
        raise TableHeldError(settings.name, "every table is held. " + " | ".join(map(str, validities)))
    while True:
        decision = decide(settings, snapshot, states, validities, plans)
        try:
            return _carry_out(opening, decision, snapshot, validities, planned_stop)
        except ConfigError as refused:
            # The ledger refused one table of the plan; nothing was opened.
            validities = _without_refused(opening, decision, validities, refused)


def _without_refused(
    opening: Opening, decision: Decision, validities: tuple[Validity, ...], error: ConfigError
) -> tuple[Validity, ...]:
    """Return the verdicts with ``not_plannable`` for the planned table that an error is about.

    Raises the error where it is about no table, or about the only one.
    """
    planned = {str(table.source): table.source for table in decision.tables} if isinstance(decision, Open) else {}
    name = planned.get(error.subject)
    if name is None or len(planned) == 1:
        raise error
    left = tuple(not_plannable(each, error) if each.table == name else each for each in validities)
    out = [each for each in left if each.table == name]
    _log_validities(tuple(out), {})
    opening.ledger.record_verdicts(opening.settings.name, out)
    return left


def _carry_out(
    opening: Opening,
    decision: Decision,
    snapshot: SourceSnapshot,
    validities: tuple[Validity, ...],
    planned_stop: PlannedStop | None,
) -> OpenResult:
    """Do what was decided about the next window."""
    pipeline = opening.settings.name
    match decision:
        case Fail():
            raise decision.error
        case Skip():
            stopped = planned_stop is not None and snapshot.capture_running is not True
            return _nothing(decision.reason + (f" The capture job does not run for {planned_stop}." if stopped else ""))
        case AdvanceQuiet():
            opening.ledger.advance_quiet(pipeline, decision.to, decision.watermarks, decision.to_at, decision.feeds)
            if gap := incident(pipeline, validities):
                raise gap
            reason = f"no table has a change up to {decision.to}; the watermarks moved there without a window."
            return _nothing(reason, decision.to)
        case Open():
            plan = opening.ledger.open_window(
                pipeline, decision.to, decision.tables, decision.to_at, measures=decision.measures
            )
            _LOG.info("Window %s opened: up to %s for all %s tables.", plan.window_id, plan.to, len(plan.tables))
            for table in plan.tables:
                _log_table(table)
            return OpenResult(plan.window_id, "a new window", WindowState.PLANNED, plan.to)


def _go_on(opening: Opening, plan: WindowPlan, state: WindowState) -> OpenResult:
    """Return the window of an earlier run, to be finished by this one."""
    reason = f"window {plan.window_id} (up to {plan.to}) is unfinished: {state.value}. This run finishes it."
    _LOG.info("%s", reason)
    if state is WindowState.PLANNED:
        rules = {table.source: table.rules for table in opening.settings.tables}
        if opening.ledger.replace_rules(plan.window_id, rules) != plan:
            _LOG.info("Window %s now uses the rules of the current configuration.", plan.window_id)
    return OpenResult(plan.window_id, reason, state, plan.to)


def _nothing(reason: str, to: Position | None = None) -> OpenResult:
    _LOG.info("Nothing to read: %s", reason)
    return OpenResult(None, reason, to=to)


def _log_snapshot(snapshot: SourceSnapshot) -> None:
    behind = "" if snapshot.seconds_behind is None else f", {snapshot.seconds_behind:.0f} s ago"
    found = snapshot.newest
    newest = f"newest {found.noun} {found}" if isinstance(found, Position) else "nothing recorded yet"
    feeds = snapshot.words.describe_capture(snapshot.capture_running)
    _LOG.info("Source %s: %s%s; %s.", snapshot.database, newest, behind, feeds)


def _log_validities(validities: tuple[Validity, ...], states: Mapping[TableName, TableState]) -> None:
    for validity in validities:
        state = states.get(validity.table)
        waiting = state is not None and state.watermark is not None and not state.consistent
        level = logging.WARNING if validity.verdict in LEFT_OUT else logging.INFO
        _LOG.log(level, "%s%s", validity, " Not yet consistent with the other tables." if waiting else "")


def _log_table(table: TablePlan) -> None:
    key = f"by key ({', '.join(table.feed.table.key)})" if table.feed.table.key else "without a key"
    if table.kind is LoadKind.FIRST_LOAD:
        _LOG.info("%s -> %s: first load, %s.", table.source, table.target, key)
    elif table.quiet:
        _LOG.info("%s -> %s: no change in %s, nothing to read.", table.source, table.target, table.interval)
    else:
        _LOG.info("%s -> %s: changes in %s, %s.", table.source, table.target, table.interval, key)
    for loss in list_losses(table.feed.table, table.settings.temporal):
        _LOG.info("%s: %s (temporal: %s).", table.source, loss, table.settings.temporal.value)
