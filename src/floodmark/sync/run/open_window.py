"""The first step of a run: go on with the unfinished window, or look at the source and decide what is next."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.capture_status import PlannedStop
from floodmark.core.source.snapshot import SourceSnapshot, Validity, Verdict
from floodmark.core.source.verdicts import GAPS, incident
from floodmark.core.types import list_losses
from floodmark.core.window.plan import LoadKind, TablePlan, WindowPlan, WindowState
from floodmark.core.window.planning import (
    AdvanceQuiet,
    Fail,
    Skip,
    classify_tables,
    decide,
    has_changed,
    known_positions,
    pinned_instances,
)
from floodmark.sync.alerts import Alerts
from floodmark.sync.drift.watch import DriftWatch, all_held, held_verdicts
from floodmark.sync.ports.drift import Hold
from floodmark.sync.ports.run import Ledger, Source, TableState
from floodmark.sync.recovery.repair import Repairs
from floodmark.sync.run.retry import look_again
from floodmark.sync.run.verify_reads import classify_reads
from floodmark.sync.upkeep.lag import tell_lag

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenResult:
    """window_id None: there is nothing to load, ``reason`` says why, and the run ends here.

    state: how far the window is already; PLANNED for a new one. to_lsn: of the window, or where watermarks moved to.
    """

    window_id: int | None
    reason: str
    state: WindowState | None = None
    to_lsn: Lsn | None = None


def open_window(
    settings: PipelineSettings, source: Source, ledger: Ledger, drift: DriftWatch | None = None,
    planned_stop: PlannedStop | None = None, *, alerts: Alerts | None = None,
) -> OpenResult:  # fmt: skip
    """At most two statements at the source, and some more where a table differs from what ``drift`` knows of it.

    planned_stop: of the capture job, the one that is on; the job's standing still is then no incident.

    Raises the error of the gravest verdict, naming all tables concerned. Tables that a schema drift holds are left out;
    TableHeldError when that is all of them. So are tables that are loaded anew; where their policy says so, a gap opens
    such a load (see ``repair``), of which ``alerts`` tells. Of other gaps it raises when no table is left that has
    changes, else they are to be told of at the end of the run (see ``gaps``). Overtaken by another run, it looks again.
    """
    ledger.ensure_schema()
    repairs = Repairs(settings, ledger, alerts)
    return look_again(lambda: _open(repairs, source, drift, planned_stop))


def _open(
    repairs: Repairs, source: Source, drift: DriftWatch | None, planned_stop: PlannedStop | None
) -> OpenResult:  # fmt: skip
    settings, ledger = repairs.settings, repairs.ledger
    unfinished = ledger.unfinished_window(settings.name)
    if unfinished is not None:
        plan: WindowPlan | None = unfinished.plan
        if unfinished.state is WindowState.PLANNED:
            plan = _without_removed(settings, ledger, drift, unfinished.plan)
            plan = plan and _without_held(settings, source, ledger, drift, plan)
            plan = plan and _without_gaps(repairs, source, drift, plan)
        if plan is not None:
            return _go_on(settings, ledger, plan, unfinished.state)
    states = ledger.read_tables(settings.name)
    snapshot = source.read_snapshot(settings.sources, pinned_instances(settings, states), known_positions(states))
    _log_snapshot(snapshot)
    snapshot, holds = _examine(settings, snapshot, states, drift)
    validities = held_verdicts(classify_tables(settings, snapshot, states, planned_stop), holds)
    validities = repairs.leave_out(validities, snapshot, states)
    _log_validities(validities, states)
    ledger.record_verdicts(settings.name, validities)
    tell_lag(settings.name, validities, repairs.alerts)
    if error := all_held(settings.name, validities):
        raise error
    decision = decide(settings, snapshot, states, validities)
    if isinstance(decision, Fail):
        raise decision.error
    if isinstance(decision, Skip):
        stopped = planned_stop is not None and snapshot.capture_running is not True
        return _nothing(decision.reason + (f" The capture job does not run for {planned_stop}." if stopped else ""))
    if isinstance(decision, AdvanceQuiet):
        ledger.advance_quiet(
            settings.name, decision.to_lsn, decision.watermarks, decision.to_lsn_at, decision.instances
        )  # fmt: skip
        if gap := incident(settings.name, validities):
            raise gap
        reason = f"no table has a change up to {decision.to_lsn}; the watermarks moved there without a window."
        return _nothing(reason, decision.to_lsn)
    plan = ledger.open_window(settings.name, decision.to_lsn, decision.tables, decision.to_lsn_at)
    _LOG.info("Window %s opened: up to %s for all %s tables.", plan.window_id, plan.to_lsn, len(plan.tables))
    for table in plan.tables:
        _log_table(table)
    return OpenResult(plan.window_id, "a new window", WindowState.PLANNED, plan.to_lsn)


def _without_removed(
    settings: PipelineSettings, ledger: Ledger, drift: DriftWatch | None, plan: WindowPlan
) -> WindowPlan | None:  # fmt: skip
    """The plan without the tables that the configuration has no more: what keeps one of them from being read, nobody
    will mend, and no command knows it any more. None where nothing is left of it."""
    removed = [table.source for table in plan.tables if table.source not in settings.sources]
    for name in removed:
        _LOG.warning("Left out of window %s: %s is not in the configuration any more.", plan.window_id, name)
    return _leave_out(ledger, drift, plan, removed)


def _leave_out(
    ledger: Ledger, drift: DriftWatch | None, plan: WindowPlan, tables: Sequence[TableName]
) -> WindowPlan | None:  # fmt: skip
    if not tables:
        return plan
    left = ledger.leave_out(plan.window_id, tables)
    # Where something is left, its next load drops what is in the way, and keeps the chunks of first loads.
    if left is None and drift is not None:
        drift.drop_staging(plan.window_id)
    return left


def _without_held(
    settings: PipelineSettings, source: Source, ledger: Ledger, drift: DriftWatch | None, plan: WindowPlan
) -> WindowPlan | None:
    """The plan without the tables that drifted since it was made, be they held or first loads of other columns: they
    must not keep the others from being finished.

    None where nothing is left of it; the rows are still at the source, and a later window has them.
    """
    if drift is None:
        return plan
    states = ledger.read_tables(settings.name)
    snapshot = source.read_snapshot(settings.sources, pinned_instances(settings, states))
    snapshot, holds = _examine(settings, snapshot, states, drift)
    held = [table.source for table in plan.tables if table.source in holds]
    others = [table for table in plan.tables if table.source not in held]
    changed = [table.source for table in others if has_changed(table, snapshot, settings)]
    if not held and not changed:
        return plan
    for name in changed:
        why = "has other columns or another key by now; it is planned anew."
        _LOG.warning("Left out of window %s: %s %s", plan.window_id, name, why)
    validities = held_verdicts(classify_tables(settings, snapshot, states), holds)
    ledger.record_verdicts(settings.name, [validity for validity in validities if validity.table in held])
    for validity in validities:
        if validity.table in held:
            _LOG.warning("Left out of window %s: %s", plan.window_id, validity)
    return _leave_out(ledger, drift, plan, [*held, *changed])


def _without_gaps(
    repairs: Repairs, source: Source, drift: DriftWatch | None, plan: WindowPlan
) -> WindowPlan | None:  # fmt: skip
    """The plan without the tables whose changes have gone meanwhile; None where nothing is left of it. Raises for other
    verdicts as ``verify_reads`` does.

    A plan whose end is not of the source's log any more is given up: what the target has of the lost time, if anything,
    shows at the watermarks. First loads whose changes have gone are planned anew: nothing was lost of them yet.
    """
    settings, ledger = repairs.settings, repairs.ledger
    snapshot, validities = classify_reads(plan, source)
    if rewound := [validity for validity in validities if validity.verdict is Verdict.AHEAD_OF_SOURCE]:
        _LOG.warning("Window %s is given up: %s", plan.window_id, rewound[0])
        return _leave_out(ledger, drift, plan, [table.source for table in plan.tables])
    first = {table.source for table in plan.tables if table.kind is LoadKind.FIRST_LOAD}
    again = [validity for validity in validities if validity.table in first and validity.verdict in GAPS]
    gaps = [validity for validity in validities if validity not in again and validity.verdict in GAPS]
    for validity in (*again, *gaps):
        _LOG.warning("Left out of window %s: %s", plan.window_id, validity)
    left = _leave_out(ledger, drift, plan, [validity.table for validity in (*again, *gaps)])
    if gaps:
        states = ledger.read_tables(settings.name)
        snapshot, _ = _examine(settings, snapshot, states, drift)
        ledger.record_verdicts(settings.name, repairs.leave_out(gaps, snapshot, states))
    if error := incident(settings.name, tuple(each for each in validities if each not in (*again, *gaps))):
        raise error
    return left


def _examine(
    settings: PipelineSettings, snapshot: SourceSnapshot, states: Mapping[TableName, TableState],
    drift: DriftWatch | None,
) -> tuple[SourceSnapshot, Mapping[TableName, Hold]]:  # fmt: skip
    if drift is None:
        return snapshot, {}
    examined = drift.examine(settings, snapshot, states)
    return examined.snapshot, examined.holds


def _go_on(
    settings: PipelineSettings, ledger: Ledger, plan: WindowPlan, state: WindowState
) -> OpenResult:  # fmt: skip
    """Finish what an earlier run began."""
    reason = f"window {plan.window_id} (up to {plan.to_lsn}) is unfinished: {state.value}. This run finishes it."
    _LOG.info("%s", reason)
    if state is WindowState.PLANNED:
        rules = {table.source: table.rules for table in settings.tables}
        if ledger.replace_rules(plan.window_id, rules) != plan:
            _LOG.info("Its rules are those of today's configuration.")
    return OpenResult(plan.window_id, reason, state, plan.to_lsn)


def _nothing(reason: str, to_lsn: Lsn | None = None) -> OpenResult:
    _LOG.info("Nothing to read: %s", reason)
    return OpenResult(None, reason, to_lsn=to_lsn)


def _log_snapshot(snapshot: SourceSnapshot) -> None:
    running = {True: "runs", False: "does not run", None: "cannot be seen"}[snapshot.capture_running]
    behind = "" if snapshot.seconds_behind is None else f", {snapshot.seconds_behind:.0f} s ago"
    newest = snapshot.max_lsn if isinstance(snapshot.max_lsn, Lsn) else "none"
    _LOG.info("Source %s: newest LSN %s%s; the capture job %s.", snapshot.database, newest, behind, running)


def _log_validities(validities: tuple[Validity, ...], states: Mapping[TableName, TableState]) -> None:
    for validity in validities:
        state = states.get(validity.table)
        waiting = state is not None and state.watermark is not None and not state.consistent
        level = logging.WARNING if validity.verdict in GAPS else logging.INFO
        _LOG.log(level, "%s%s", validity, " Not yet consistent with the other tables." if waiting else "")


def _log_table(table: TablePlan) -> None:
    key = ", ".join(table.instance.table.key)
    if table.kind is LoadKind.FIRST_LOAD:
        _LOG.info("%s -> %s: first load, by key (%s).", table.source, table.target, key)
    elif table.quiet:
        _LOG.info("%s -> %s: no change in %s, nothing to read.", table.source, table.target, table.interval)
    else:
        _LOG.info("%s -> %s: changes in %s, by key (%s).", table.source, table.target, table.interval, key)
    for loss in list_losses(table.instance.table, table.temporal):
        _LOG.info("%s: %s (temporal: %s).", table.source, loss, table.temporal.value)
