"""Gaps, repairs, reloads, and the adoption of tables that another tool has loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.core.errors import (
    ConfigError,
    FloodmarkError,
    NoKeyError,
    NotCapturedYetError,
    OperatorError,
    TableHeldError,
    WindowBusyError,
    command_line,
)
from floodmark.core.imported import ImportedPosition, TableImport, ToolState
from floodmark.core.plan import LoadProgress, TablePlan, WindowPlan, WindowState, is_load_lane, load_lane
from floodmark.core.planning import (
    NO_MEASURES,
    classify_tables,
    has_changed,
    known_positions,
    measure_plan,
    not_plannable,
    pinned_feeds,
    plan_reload,
    plan_table,
)
from floodmark.core.position import Position
from floodmark.core.recovery import REPAIR, Gap, build_gap, build_repair_alert, repair_key, repairing
from floodmark.core.schema import TableName
from floodmark.core.settings import DriftClass, OnGap, PipelineSettings, Style, TableSettings, WhenAdded
from floodmark.core.snapshot import LogEntry, SourceSnapshot, TableSnapshot, TableState, Validity, Verdict
from floodmark.core.verdicts import GAPS, classify, incident
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports import RowsAge, Source, Warehouse
from floodmark.sync.records import DriftCheck, NoDriftCheck, OpenedWindow
from floodmark.sync.window import (
    OpenResult,
    classify_reads,
    follow_database,
    held_verdicts,
    require_origin,
    retry_on_conflict,
)

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger
    from floodmark.postgres.warehouse.adoption import PostgresAdoption

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# Repairs: a table with a gap is left out of the windows of its pipeline, and a window on its own lane reloads it.
#
# A table that was added to a pipeline is loaded in the same way, where its configuration says so. The window is only
# opened here; the DAG ``cdc_load_<pipeline>``, or ``floodmark reload``, does the work. The other tables continue
# meanwhile, and the old rows of the table stay readable.


@dataclass(frozen=True, slots=True)
class Repairs:
    """The repairs of one pipeline."""

    settings: PipelineSettings
    ledger: PostgresLedger
    alerts: Alerts

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
            each.source for each in self.settings.tables if each.first_load.when_added is WhenAdded.IN_PARALLEL
        }
        loaded = {name for name, state in states.items() if state.watermark is not None}
        return validity.table in in_parallel and not loaded.isdisjoint(self.settings.sources)

    def open(
        self, table: TablePlan, snapshot: SourceSnapshot, state: TableState | None, validity: Validity
    ) -> WindowPlan:
        """Open a window on the table's load lane; record and report a gap. Raises WindowBusyError."""
        assert isinstance(snapshot.newest, Position)  # noqa: S101  (checked by plan_reload)
        name = self.settings.name
        gap = None
        if validity.verdict in GAPS and not table.where:
            gap = _find_gap(validity, snapshot, state)
            # The gap is recorded before the window: where a run dies in between, the table is unchanged.
            self.ledger.record_gap(name, gap, table.watermark)
        # A load of some rows moves no watermark.
        measures = NO_MEASURES if table.where else measure_plan(snapshot)
        lane = load_lane(table.source)
        plan = self.ledger.open_window(name, snapshot.newest, [table], snapshot.newest_at, lane, measures=measures)
        _LOG.info("Window %s opened on lane %s, up to %s.", plan.window_id, plan.lane, plan.to)
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
    return (
        f"The DAG cdc_load_{plan.pipeline} does it, or {command_line('reload', plan.pipeline, plan.tables[0].source)}."
    )


def end_repair(plan: WindowPlan, alerts: Alerts) -> None:
    """End the alert about a repair after its window has been published. Harmless for any other window."""
    if is_load_lane(plan.lane) and not plan.tables[0].where:
        alerts.end_alert(repair_key(plan.pipeline, plan.tables[0].source))


def resolve_repair_alerts(pipeline: str, ledger: PostgresLedger, alerts: Alerts) -> None:
    """End the alerts about repairs where no load of the pipeline is unfinished.

    Such an alert was raised by a run that had checked before the end of the repair, or remains from a process that died
    between publishing the load and ending the alert.
    """
    if not any(is_load_lane(opened.plan.lane) for opened in ledger.list_unfinished(pipeline)):
        alerts.end_alerts(REPAIR, pipeline)


# --------------------------------------------------------------------------------------------------------------------
# The first step of a load in parallel to the windows: continue an unfinished one, or plan a requested one.


@dataclass(frozen=True, slots=True)
class LoadPlanner:
    """Opens loads of single tables of a pipeline."""

    settings: PipelineSettings
    source: Source
    ledger: PostgresLedger
    warehouse: Warehouse
    drift: DriftCheck = field(default_factory=NoDriftCheck)
    alerts: Alerts = field(default_factory=Alerts)

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
                f"Finish it ({command_line('reload', self.settings.name, table)}).",
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
                    f"Finish it ({command_line('reload', self.settings.name, table.source)}); then load the others.",
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
        pinned = pinned_feeds(self.settings, states)
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
        return OpenResult(plan.window_id, "a new window", WindowState.PLANNED, plan.to)

    def _has_changed(self, plan: WindowPlan) -> bool:
        states = self.ledger.read_tables(self.settings.name)
        snapshot = self.source.read_snapshot(self.settings.sources, pinned_feeds(self.settings, states))
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
        return OpenResult(plan.window_id, reason, opened.state, plan.to)


# --------------------------------------------------------------------------------------------------------------------
# The adoption of tables that another tool has loaded: they get a watermark, and no first load.
#
# An import is a first load that another tool has done: the rows have every change up to the position of its state, and
# may have later ones, up to the moment of the import. So the windows after it, their checks and the bound of replays
# are those after a first load at that position. The merge makes the overlap harmless.


_INSIDE = frozenset({Verdict.READY, Verdict.CAUGHT_UP, Verdict.CAPTURE_STOPPED, Verdict.CAPTURE_LAGGING})
"""The verdicts of a position that is inside the validity interval."""
_OF_ONE_TABLE = (ConfigError, NoKeyError, OperatorError, WindowBusyError)


@dataclass(frozen=True, slots=True)
class Adopter:
    """Imports the positions of other tools into a pipeline."""

    settings: PipelineSettings
    source: Source
    ledger: PostgresLedger
    targets: PostgresAdoption
    read_time: Callable[[Position], datetime | None]
    """Returns the time in UTC of the newest commit up to a position; None where it is not known."""

    def adopt(
        self, state: ToolState, tables: Sequence[TableSettings], *, dry_run: bool = False
    ) -> Sequence[TableImport]:
        """Set the watermarks of tables to the position of a state. A refused table does not stop the others.

        dry_run: only check. Raises OperatorError where the state is of no use for any table, and the errors of
        ``require_origin``.
        """
        self.ledger.ensure_schema()
        states = self.ledger.read_tables(self.settings.name)
        # The database is known when it has answered; its name is what the positions of some tools are chosen by.
        position = state.position_in(self.source.read_snapshot([]).database)
        snapshot = self.source.read_snapshot(
            self.settings.sources,
            pinned_feeds(self.settings, states),
            [*known_positions(states), position.after, position.log_lsn],
        )
        require_origin(self.settings, snapshot, states)
        one = _OneImport(self, position, snapshot, states, dry_run)
        return [one.run(table) for table in tables]


@dataclass(frozen=True, slots=True)
class _OneImport:
    """One import, with what is the same for all of its tables."""

    adopter: Adopter
    position: ImportedPosition
    snapshot: SourceSnapshot
    states: Mapping[TableName, TableState]
    dry_run: bool

    def run(self, table: TableSettings) -> TableImport:
        """Adopt one table, or return why it cannot be adopted."""
        state = self.states.get(table.source)
        if state is not None and state.watermark is not None:
            return self._refuse(
                table,
                f"it has the watermark {state.watermark} already.",
                "Run the pipeline, which continues from there; a watermark is never set a second time.",
            )
        if why := self.position.explain_refusal(table.source):
            return self._refuse(table, why, self._load_instead(table))
        seen = next(each for each in self.snapshot.tables if each.table == table.source)
        validity = self._classify(seen)
        if validity.verdict not in _INSIDE:
            hint = self._load_instead(table) if validity.verdict in GAPS else validity.hint
            return self._refuse(table, validity.cause, hint, validity.verdict.value)
        try:
            return self._adopt(table, seen, validity)
        except _OF_ONE_TABLE as error:
            return self._refuse(table, error.message, error.hint, validity.verdict.value)

    def _adopt(self, table: TableSettings, seen: TableSnapshot, validity: Validity) -> TableImport:
        plan = plan_table(table, seen, self.snapshot, None)
        age = self._age(table)
        window_id = None
        if self.dry_run:
            self.adopter.targets.check_adoption(plan)
        else:
            pipeline = self.adopter.settings.name
            follow_database(pipeline, self.snapshot, self.adopter.ledger)
            window_id = self.adopter.targets.adopt(pipeline, plan, age)
            _LOG.info("%s: %s was adopted, its watermark is %s.", table.source, table.target, self.position.after)
        return TableImport(table.source, table.target, self.position.after, validity.verdict.value, window_id)

    def _classify(self, seen: TableSnapshot) -> Validity:
        """Return the verdict that a run would give on a watermark at the position."""
        settings, after = self.adopter.settings, self.position.after
        as_if = TableState(seen.table, after, None, consistent=False)
        validity = classify(
            seen,
            self.snapshot,
            as_if,
            settings.lag_limit_seconds,
            pipeline=settings.name,
            source_name=settings.source_name,
        )
        if validity.verdict in _INSIDE and self._is_elsewhere(seen):
            return Validity(
                seen.table,
                Verdict.OTHER_DATABASE,
                f"the log of {self.snapshot.database} has no transaction at {self.position.log_lsn}, which "
                f"{self.position.tool} has read: it read another database, or this one was restored since.",
                "Correct the connection. Where the database was restored, load the tables instead.",
                after,
            )
        return validity

    def _is_elsewhere(self, seen: TableSnapshot) -> bool:
        """Return whether the log is not the one that the tool has read (``core.snapshot`` on what proves it)."""
        proof, low = self.position.log_lsn, seen.oldest
        sees_times = self.snapshot.newest_at is not None
        return sees_times and isinstance(low, Position) and proof > low and self.snapshot.entries.get(proof) is None

    def _age(self, table: TableSettings) -> RowsAge:
        """Return the age of the rows. Raises ConfigError where a history would not know when its versions begin."""
        after, newest, begins_at = self.position.after, self.snapshot.newest, None
        if table.style is Style.HISTORY and (begins_at := self.adopter.read_time(after)) is None:
            raise ConfigError(
                str(table.source),
                f"style: history, and the source does not know the time of {after}, at which the versions of the "
                "adopted rows would begin.",
                "Name another target, and run the pipeline, which loads it.",
            )
        return RowsAge(
            LogEntry(after, self.snapshot.entries.get(after)),
            self.snapshot.latest_commit_at,
            newest if isinstance(newest, Position) else None,
            self.snapshot.newest_at,
            begins_at,
        )

    def _load_instead(self, table: TableSettings) -> str:
        return f"Rename or drop {table.target}, then run the pipeline: it loads the table from the source."

    def _refuse(self, table: TableSettings, why: str, hint: str, verdict: str = "") -> TableImport:
        return TableImport(table.source, table.target, self.position.after, verdict, refusal=why, hint=hint)
