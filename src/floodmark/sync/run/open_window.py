"""The first step of a run: continue the unfinished window, or plan the next one from a snapshot of the source."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from floodmark.core.errors import ConfigError
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.capture_status import PlannedStop
from floodmark.core.source.snapshot import SourceSnapshot, Validity
from floodmark.core.source.state import TableState
from floodmark.core.source.verdicts import LEFT_OUT, incident
from floodmark.core.types import list_losses
from floodmark.core.window.plan import LoadKind, TablePlan, WindowPlan, WindowState
from floodmark.core.window.planning import (
    AdvanceQuiet,
    Decision,
    Fail,
    Open,
    Skip,
    check_plans,
    classify_tables,
    decide,
    known_positions,
    not_plannable,
    pinned_instances,
)
from floodmark.sync.alerts import Alerts, NoAlerts
from floodmark.sync.drift.watch import all_held, held_verdicts
from floodmark.sync.ports.drift_watch import DriftCheck, NoDriftCheck
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.source import Source
from floodmark.sync.recovery.repair import Repairs
from floodmark.sync.run.plan_guards import Opening, drop_refused, guard_plan
from floodmark.sync.upkeep.lag import report_lag
from floodmark.sync.window.opened import OpenResult
from floodmark.sync.window.origin import follow_database
from floodmark.sync.window.retry import retry_on_conflict

_LOG = logging.getLogger(__name__)


def open_window(
    settings: PipelineSettings,
    source: Source,
    ledger: Ledger,
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
    repairs = Repairs(settings, ledger, alerts or NoAlerts())
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
    pinned = pinned_instances(settings, states)
    marks = ledger.list_marks(settings.name)
    snapshot = opening.source.read_snapshot(settings.sources, pinned, known_positions(states), marks)
    _log_snapshot(snapshot)
    examined = opening.examine(snapshot, states)
    snapshot = examined.snapshot
    validities = held_verdicts(classify_tables(settings, snapshot, states, planned_stop), examined.holds)
    validities = check_plans(settings, snapshot, states, validities)
    validities = opening.repairs.leave_out(validities, snapshot, states)
    _log_validities(validities, states)
    ledger.record_verdicts(settings.name, validities)
    follow_database(settings.name, snapshot, ledger)
    report_lag(settings.name, validities, opening.repairs.alerts)
    if error := all_held(settings.name, validities):
        raise error
    while True:
        decision = decide(settings, snapshot, states, validities)
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
            opening.ledger.advance_quiet(
                pipeline, decision.to_lsn, decision.watermarks, decision.to_lsn_at, decision.instances
            )
            if gap := incident(pipeline, validities):
                raise gap
            reason = f"no table has a change up to {decision.to_lsn}; the watermarks moved there without a window."
            return _nothing(reason, decision.to_lsn)
        case Open():
            plan = opening.ledger.open_window(
                pipeline, decision.to_lsn, decision.tables, decision.to_lsn_at, measures=decision.measures
            )
            _LOG.info("Window %s opened: up to %s for all %s tables.", plan.window_id, plan.to_lsn, len(plan.tables))
            for table in plan.tables:
                _log_table(table)
            return OpenResult(plan.window_id, "a new window", WindowState.PLANNED, plan.to_lsn)


def _go_on(opening: Opening, plan: WindowPlan, state: WindowState) -> OpenResult:
    """Return the window of an earlier run, to be finished by this one."""
    reason = f"window {plan.window_id} (up to {plan.to_lsn}) is unfinished: {state.value}. This run finishes it."
    _LOG.info("%s", reason)
    if state is WindowState.PLANNED:
        rules = {table.source: table.rules for table in opening.settings.tables}
        if opening.ledger.replace_rules(plan.window_id, rules) != plan:
            _LOG.info("Window %s now uses the rules of the current configuration.", plan.window_id)
    return OpenResult(plan.window_id, reason, state, plan.to_lsn)


def _nothing(reason: str, to_lsn: Position | None = None) -> OpenResult:
    _LOG.info("Nothing to read: %s", reason)
    return OpenResult(None, reason, to_lsn=to_lsn)


def _log_snapshot(snapshot: SourceSnapshot) -> None:
    behind = "" if snapshot.seconds_behind is None else f", {snapshot.seconds_behind:.0f} s ago"
    found = snapshot.max_lsn
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
    key = ", ".join(table.feed.table.key)
    if table.kind is LoadKind.FIRST_LOAD:
        _LOG.info("%s -> %s: first load, by key (%s).", table.source, table.target, key)
    elif table.quiet:
        _LOG.info("%s -> %s: no change in %s, nothing to read.", table.source, table.target, table.interval)
    else:
        _LOG.info("%s -> %s: changes in %s, by key (%s).", table.source, table.target, table.interval, key)
    for loss in list_losses(table.feed.table, table.temporal):
        _LOG.info("%s: %s (temporal: %s).", table.source, loss, table.temporal.value)
