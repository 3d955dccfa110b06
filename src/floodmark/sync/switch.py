"""Switches of capture instances: the proposals about new columns, the operator's decisions, and the steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.core.capture import FOR_DBA, TOUCHED, disable_instance, filled_rows, literal
from floodmark.core.definition import as_loaded
from floodmark.core.drift import (
    InstanceSwitch,
    LivingInstance,
    PlannedSwitch,
    Proposal,
    SwitchedPipeline,
    SwitchState,
    build_proposal,
    build_switch_alert,
    rows_to_fill,
    spelled_by_server,
    switch_key,
)
from floodmark.core.errors import (
    ConfigError,
    FloodmarkError,
    OperatorError,
    TableBusyError,
    TransientError,
    WindowBusyError,
)
from floodmark.core.naming import strictest_naming
from floodmark.core.plan import TablePlan, finishing_command
from floodmark.core.planning import pinned_feeds, plan_table
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import Backfill, DriftClass, DriftPolicy, PipelineSettings, Style, TableSettings
from floodmark.core.shapes import stored, unsupported_reason
from floodmark.core.snapshot import Feed, FeedIdentity, SourceSnapshot, TableSnapshot, TableState
from floodmark.sync.drift_watch import WatchedSource, alert_key
from floodmark.sync.ports import Source
from floodmark.sync.records import DriftEvent, TableDetails

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger
    from floodmark.sources.cdc.source import SqlServerInstances

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

    @property
    def instance(self) -> Feed:
        """The capture instance."""
        assert self.table_snapshot.feed is not None  # noqa: S101  (checked by the caller)
        return self.table_snapshot.feed


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The proposals, the decisions and the switches of one source.

    A proposal is made when a column is found (``sync.drift_watch``) and made again when the operator reads it. The
    approved text is run word by word, so it must fit the source as it is then. One proposal covers all new columns of a
    table.
    """

    source: WatchedSource
    snapshots: Callable[[], Source]
    control: Callable[[], SqlServerInstances]
    check_target: Callable[[TablePlan], frozenset[str]]
    """Returns the columns of a target, none where it does not exist yet. Raises ConfigError for one that cannot have
    the rows of the plan."""
    windows: PostgresLedger
    open_load: Callable[[str, TableName, str], int]
    """Opens or finds the load of the rows of a pipeline's table for which a condition is true; returns the window's
    id."""
    elsewhere: Collection[str] = ()
    """The pipelines of other sources. Their capture instances may have the same identities: restored copies."""

    # -- the proposals and the operator's decisions ------------------------------------------------------------------

    def list_proposed(self) -> list[tuple[DriftEvent, Proposal]]:
        """Return the newest undecided event of each table, with its current proposal."""
        under_way = {switch.table for switch in self.source.ledger.list_switches(self.source.name)}
        return [
            (replace(events[-1], proposal=proposal.text), proposal)
            for table, events in self._undecided().items()
            if table not in under_way and (proposal := self._refresh(table, events)) is not None
        ]

    def approve(self, event_id: int, by: str) -> InstanceSwitch:
        """Start the switch that the event proposes.

        Raises OperatorError where there is nothing to decide, or where the current proposal differs from the one that
        the operator has read.
        """
        event = self._find(event_id)
        table, events = self._asked_with(event)
        proposal = self._refresh(table, events)
        if proposal is None:
            raise OperatorError(
                f"drift event {event_id}",
                f"{event.table} no longer has a new column that a second capture instance could capture.",
                f"Close the event: floodmark drift reject {event_id}.",
            )
        is_made = proposal.is_there and literal(proposal.name) in event.proposal
        if proposal.text != event.proposal and not is_made:
            raise OperatorError(
                f"drift event {event_id}",
                "the source has changed since this was proposed; nothing was done. The new "
                f"proposal is:\n{proposal.text}",
                "Read it and approve again.",
            )
        since = [entry.position for each in events for entry in each.explained.entries]
        planned = PlannedSwitch(
            source=self.source.name,
            table=table,
            old=proposal.old.identity,
            name=proposal.name,
            added=proposal.added,
            columns=proposal.columns,
            enabling=proposal.enabling,
            drops=proposal.drops.identity.name if proposal.drops else "",
            since=min(since, default=None) if all(each.explained.entries for each in events) else None,
        )
        switch = self.source.ledger.open_switch(planned, [each.event_id for each in events], by)
        for each in events:
            self.source.alerts.end_alert(
                alert_key(each.event_id),
                f"{by} approved it: {table} switches to {switch.name}, with {', '.join(switch.added)}.",
            )
        return switch

    def reject(self, event_id: int, by: str) -> list[DriftEvent]:
        """Reject the columns that the event proposes to capture. Return the rejected events.

        A later event is not rejected, because the operator has not read it.
        """
        event = self._find(event_id)
        rejected = [each for each in self._asked_with(event)[1] if each.event_id <= event_id]
        for each in rejected:
            self.source.ledger.reject(each.event_id, by)
            column = each.explained.difference.column
            self.source.alerts.end_alert(
                alert_key(each.event_id), f"{by} rejected it: {each.table} continues without column {column}."
            )
        return rejected or [event]

    def _undecided(self) -> dict[TableName, list[DriftEvent]]:
        """Return the undecided events, the oldest first, by table as the source spells it: pipelines may use another
        case."""
        events = [
            event
            for event in self.source.list_events()
            if event.approved_at is None and event.proposal and DriftPolicy.PROPOSE in event.policies.values()
        ]
        living = self.source.list_instances() if events else ()
        undecided: dict[TableName, list[DriftEvent]] = {}
        for event in events:
            undecided.setdefault(spelled_by_server(event.table, living), []).append(event)
        return undecided

    def _asked_with(self, event: DriftEvent) -> tuple[TableName, list[DriftEvent]]:
        """Return the event's table, with all events of it that are decided together."""
        ids = {each.event_id: (table, events) for table, events in self._undecided().items() for each in events}
        return ids.get(event.event_id, (event.table, []))

    def _find(self, event_id: int) -> DriftEvent:
        event = next((each for each in self.source.list_events() if each.event_id == event_id), None)
        if event is None:
            raise OperatorError(
                f"drift event {event_id}", f"source {self.source.name} has no such event.", "See: floodmark drift list."
            )
        if event.approved_at is not None:
            decided = "rejected" if event.is_rejected else "approved"
            raise OperatorError(
                f"drift event {event_id}", f"{event.approved_by} has already {decided} it.", "Nothing is to be done."
            )
        if not event.proposal:
            raise OperatorError(
                f"drift event {event_id}", "it has no proposal.", f"Close it: floodmark drift approve {event_id}."
            )
        return event

    def _refresh(self, table: TableName, events: Sequence[DriftEvent]) -> Proposal | None:
        """Return the current proposal, None for none, and record it with the undecided events of the table."""
        proposal = self._propose(table, events)
        for event in events:
            if proposal is not None and event.proposal != proposal.text:
                self.source.ledger.replace_proposal(event.event_id, proposal.text)
        return proposal

    def _propose(self, table: TableName, events: Sequence[DriftEvent]) -> Proposal | None:
        asking = {name for event in events for name, policy in event.policies.items() if policy is DriftPolicy.PROPOSE}
        living = self.source.list_instances()
        found = [reader for reader in self._list_tables(table, living) if reader[0].name in asking]
        if not found:
            return None
        settings, name = found[0][0], found[0][1].source
        pinned = pinned_feeds(settings, self.windows.read_tables(settings.name))
        instance = self.snapshots().read_snapshot([name], pinned).tables[0].feed
        if instance is None:
            return None
        all_details = self.source.read_details(
            {each.identity.name: each.table for each in living if each.table == instance.table.name}
        )
        mine = next((each for each in living if each.identity == instance.identity), None)
        details = all_details.get(instance.identity.name)
        if mine is None or details is None:
            return None
        wanted = {
            each.explained.difference.column
            for each in events
            if each.explained.difference.kind is DriftClass.COLUMN_ADDED
        }
        captured = [column.name for column in stored(instance.table, details.lost).columns]
        naming = strictest_naming(each for _, each in found)
        added = [
            column.name
            for column in details.uncaptured
            if column.name in wanted and not unsupported_reason(column, naming)
        ]
        if not added:
            return None
        others = [each for each in living if each.table == mine.table and each != mine]
        able = _select_able(others, all_details, [*captured, *added])
        proposal = build_proposal(mine, captured, added, living, able, user=self.source.find_user())
        return replace(
            proposal, explained=tuple(each.explained for each in events if each.explained.difference.column in added)
        )

    # -- the steps -------------------------------------------------------------------------------------------------

    def take(self) -> list[str]:
        """Advance every switch as far as it can go now. Return a sentence for each.

        An alert is raised where the operator has to act. The steps: create the second instance; switch a pipeline when
        its watermark has reached the start of that instance; load the new columns of the rows that have them; drop the
        first instance when no pipeline reads it. Any process may take or repeat a step. Each time, the progress is read
        from the source and the ledger, so that a process that dies between two steps leaves nothing to repair.
        """
        with self.source.ledger.hold_switches(self.source.name) as is_free:
            if not is_free:
                return ["another process is working on the switches."]
            return [self._take(switch) for switch in self.source.ledger.list_switches(self.source.name)]

    def _take(self, switch: InstanceSwitch) -> str:
        name = f"{switch.table}, {switch.old.name} to {switch.name}"
        try:
            state = self._step(switch)
        except (WindowBusyError, TableBusyError) as error:
            state = f"waits: {error}"
        except TransientError:
            raise
        except FloodmarkError as error:
            reached = next(
                (
                    each
                    for each in self.source.ledger.list_switches(self.source.name)
                    if each.switch_id == switch.switch_id
                ),
                switch,
            )
            self.source.alerts.raise_alert(build_switch_alert(reached, str(error), error.hint))
            _LOG.warning("Switch of %s: %s", name, error)
            return f"{name}: {error}"
        self.source.alerts.end_alert(switch_key(switch.switch_id))
        _LOG.info("Switch of %s: %s", name, state)
        return f"{name}: {state}"

    def _step(self, switch: InstanceSwitch) -> str:
        living = self.source.list_instances()
        if not any(each.identity == switch.old for each in living) and self._list_readers(switch.old):
            self.source.ledger.finish_switch(switch.switch_id, given_up=True)
            return f"given up, because {switch.old.name} no longer exists; the verdicts of its readers say what to do."
        if switch.new is None and (gone := self._gone_columns(switch)):
            self.source.ledger.finish_switch(switch.switch_id, given_up=True)
            return f"given up, because {', '.join(gone)} was dropped or renamed; the other columns are proposed again."
        if switch.new is None:
            switch = replace(switch, new=self._make(switch, living), state=SwitchState.MADE)
            living = self.source.list_instances()
        assert switch.new is not None  # noqa: S101  (it was just created)
        second = SecondInstance(switch, self.snapshots().read_snapshot([switch.table], {switch.table: switch.new.name}))
        if second.table_snapshot.feed is None or second.table_snapshot.feed.identity != switch.new:
            if any(each.identity == switch.new for each in living) or not second.table_snapshot.permitted:
                raise self._not_permitted(switch)
            return self._remake(switch)
        waits, failed = [], []
        for settings, table in self._list_tables(switch.table, living):
            try:
                waits.append(self._go_on(settings, table, second))
            except FloodmarkError as error:
                # The other pipelines continue.
                failed.append(error)
        if failed:
            raise failed[0]
        return " ".join(filter(None, waits)) or self._finish(switch, living)

    # -- the second instance ----------------------------------------------------------------------------------------

    def _make(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> FeedIdentity:
        """Create the second instance, or use an existing one: from an earlier attempt, or created by hand."""
        found = self._able(switch, living)
        if found is None:
            self._make_room(switch, living)
            self._change(
                switch,
                f"{switch.name} could not be created",
                switch.enabling,
                lambda control: control.make_instance(switch.enabling),
            )
            found = self._able(switch, self.source.list_instances())
        if found is None:
            raise OperatorError(
                str(switch.table),
                f"{switch.name} was created and does not capture {', '.join(switch.columns)}.",
                "Check whether its columns were dropped or renamed; drop it to have it created again.",
            )
        self.source.ledger.mark_switch_made(switch.switch_id, found.identity)
        _LOG.info("%s: capture instance %s exists.", switch.table, found.identity.name)
        return found.identity

    def _drop(self, switch: InstanceSwitch, name: str) -> None:
        self._change(
            switch,
            f"{name} could not be dropped",
            disable_instance(switch.table, name),
            lambda control: control.drop_instance(switch.table, name),
        )

    def _change(
        self, switch: InstanceSwitch, failed: str, statement: str, change: Callable[[SqlServerInstances], None]
    ) -> None:
        """Make or drop an instance. statement: the statement that a db_owner can run instead."""
        try:
            change(self.control())
        except TransientError as error:
            raise TableBusyError(
                str(switch.table),
                f"capture instance {failed} yet: {error.message}",
                "The attempt waited only for seconds, because later transactions wait behind it. The next run of the "
                "drift DAG tries again.",
            ) from None
        except FloodmarkError as error:
            raise OperatorError(
                str(switch.table),
                f"capture instance {failed}: {error.message}",
                f"Have a db_owner run this: {self._for_dba(statement)}",
            ) from None

    def _for_dba(self, statement: str) -> str:
        """Return a statement on one line, at the database."""
        user = self.source.find_user()
        text = statement if user is None or statement.startswith(FOR_DBA) else user.script(statement)
        return " ".join(text.split())

    def _not_permitted(self, switch: InstanceSwitch) -> OperatorError:
        """Return the error about a second instance that exists, and that the login may not read."""
        name = switch.new.name if switch.new else switch.name
        user = self.source.find_user()
        grant = f" Have a db_owner run this: {self._for_dba(user.grant_changes(name))}" if user else ""
        return OperatorError(
            str(switch.table),
            f"the login may not read the change table of {name}.",
            "It needs the same permissions as on the first one: SELECT on the change table, and the gating role if "
            f"there is one.{grant}",
        )

    def _gone_columns(self, switch: InstanceSwitch) -> list[str]:
        """Return the columns for the second instance that no longer exist. Its creation would always fail."""
        details = self.source.read_details({switch.old.name: switch.table}).get(switch.old.name)
        if details is None:
            return []
        left = {column.name for column in details.uncaptured}
        # A new column may have the name of a column that the first instance has lost.
        return [name for name in switch.columns if (name not in left if name in switch.added else name in details.lost)]

    def _able(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> LivingInstance | None:
        """Return another instance of the table that captures all columns for the second one."""
        others = [each for each in living if each.table == switch.table and each.identity != switch.old]
        details = self.source.read_details({each.identity.name: each.table for each in others})
        return _select_able(others, details, switch.columns)

    def _make_room(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> None:
        for other in living:
            if other.table != switch.table or other.identity == switch.old:
                continue
            readers = self._list_readers(other.identity)
            if readers or other.identity.name != switch.drops:
                why = f"pipeline {readers[0]} reads it" if readers else "its removal has not been approved"
                raise OperatorError(
                    str(switch.table),
                    "the table already has two capture instances, the maximum: "
                    f"{switch.old.name} and {other.identity.name}. The latter is not dropped: {why}.",
                    f"If {other.identity.name} is not needed, drop it (sys.sp_cdc_disable_table).",
                )
            self._drop(switch, other.identity.name)

    def _remake(self, switch: InstanceSwitch) -> str:
        if switch.pipelines:
            raise OperatorError(
                str(switch.table),
                f"capture instance {switch.name} no longer exists, and {switch.pipelines[0].pipeline} reads it.",
                "Follow the hint of its verdict; a reload restores the lost changes.",
            )
        self.source.ledger.mark_switch_made(switch.switch_id, None)
        return f"{switch.name} no longer exists; it will be created again."

    def _list_tables(
        self, table: TableName, living: Sequence[LivingInstance]
    ) -> list[tuple[PipelineSettings, TableSettings]]:
        """Return the pipelines that read the table, in whatever case they spell its name."""
        return [
            (settings, each)
            for settings in self.source.pipelines
            for each in settings.tables
            if spelled_by_server(each.source, living) == table
        ]

    def _list_readers(self, instance: FeedIdentity) -> list[str]:
        return [name for name in self.source.ledger.list_readers(instance) if name not in self.elsewhere]

    # -- the end ----------------------------------------------------------------------------------------------------

    def _finish(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> str:
        readers = self._list_readers(switch.old)
        if readers:
            raise OperatorError(
                str(switch.table),
                f"pipeline {readers[0]} still reads {switch.old.name}, and the configuration does "
                "not name it for this source.",
                "Put the pipeline back into the configuration, or remove its tables from the ledger.",
            )
        if any(each.identity == switch.old for each in living):
            self._drop(switch, switch.old.name)
        self.source.ledger.finish_switch(switch.switch_id)
        return f"done; {switch.old.name} was dropped."

    # -- the part of a pipeline: it switches, and loads the values that no window brings ---------------------------

    def _go_on(self, settings: PipelineSettings, table: TableSettings, second: SecondInstance) -> str:
        """Advance the pipeline as far as it can go now. Return what it still waits for, "" for nothing.

        Raises OperatorError or ConfigError where the operator has to act first.
        """
        switch = second.switch
        state = self.windows.read_tables(settings.name).get(table.source)
        if state is None or state.identity is None:
            planned = [
                each.source for window in self.windows.list_unfinished(settings.name) for each in window.plan.tables
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
        switch, start = second.switch, second.table_snapshot.oldest
        if table.capture_instance is not None:
            raise OperatorError(
                f"{settings.name}, {switch.table}",
                f"its configuration names capture instance {table.capture_instance}.",
                "Remove capture_instance from pipelines.yaml.",
            )
        if not second.table_snapshot.permitted:
            raise self._not_permitted(switch)
        if not isinstance(start, Position):
            return f"the capture job has not reached {switch.name} yet."
        # The low end of the second instance, once the capture job has processed it.
        if state.watermark is None or state.watermark.next() < start:
            return f"{settings.name} reads {switch.old.name} up to {start} first; its watermark is {state.watermark}."
        # A target that could not take the new columns would stop every table of the pipeline from the next run on.
        self._check_target(settings, self._plan(settings, table, second, self._lost(second)))
        if not self.source.ledger.switch_pipeline(switch, settings.name, table.source, start):
            return f"{settings.name} switches when {self._holding(settings, table)} has been published."
        return ""

    def _holding(self, settings: PipelineSettings, table: TableSettings) -> str:
        """Name the unfinished windows with the table, and the commands that finish them.

        An unfinished replay would hold the table until it is repeated.
        """
        plans = [
            opened.plan
            for opened in self.windows.list_unfinished(settings.name)
            if any(each.source == table.source for each in opened.plan.tables)
        ]
        named = [f"window {plan.window_id} ({finishing_command(settings.name, plan.lane)})" for plan in plans]
        return " and ".join(named) or "its window"

    def _fill(self, settings: PipelineSettings, table: TableSettings, second: SecondInstance) -> str:
        """Load the values of the new columns that no window of the second instance brings. Return what to wait for."""
        if table.style is not Style.CURRENT:  # the rows before the switch stay as they were
            return ""
        switch = second.switch
        current = next(
            each for each in self.source.ledger.list_switches(switch.source) if each.switch_id == switch.switch_id
        )
        switched_away = current.of(settings.name)
        if switched_away is None or (switched_away.is_filled and self._read_all_touched(switched_away, second)):
            return ""
        window_id, left = switched_away.window_id, switch.added
        if switched_away.window_state is None or switched_away.is_filled:
            plan = self._plan(settings, table, second, self._lost(second))
            # The source may have lost some, and the pipeline may leave others unread.
            read = {column.name for column in plan.feed.table.columns}
            left = tuple(name for name in left if name in read)
            if not left:
                return ""
            in_target = self._check_target(settings, plan)
            there = [name for name in left if plan.target_names.get(name, name) in in_target]
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
            self.source.ledger.record_backfill(switch.switch_id, settings.name, window_id)
        return f"{settings.name} reads {switch.name}; window {window_id} loads {', '.join(left)}."

    def _read_all_touched(self, switched_away: SwitchedPipeline, second: SecondInstance) -> bool:
        """Return whether the load has read all rows that were touched.

        The load finds these rows by their changes. Cleanup may have deleted changes between its opening and its read.
        """
        assert switched_away.window_id is not None  # noqa: S101  (a window that is published has one)
        (loaded,) = self.windows.read_window(switched_away.window_id).plan.tables
        return not loaded.where.startswith(TOUCHED) or self._has_all_changes(second)

    def _lost(self, second: SecondInstance) -> tuple[str, ...]:
        name = second.instance.identity.name
        details = self.source.read_details({name: second.instance.table.name}).get(name)
        return details.lost if details else ()

    def _plan(
        self, settings: PipelineSettings, table: TableSettings, second: SecondInstance, lost: tuple[str, ...]
    ) -> TablePlan:
        """Plan a load by the second instance, with the columns of the coming windows. Raises ConfigError or
        NoKeyError."""
        without = replace(second.instance, table=stored(second.instance.table, lost))
        state = self.windows.read_tables(settings.name).get(table.source)
        loaded = as_loaded(table, state)
        return plan_table(loaded, replace(second.table_snapshot, feed=without), second.snapshot, None, state)

    def _check_target(self, settings: PipelineSettings, plan: TablePlan) -> frozenset[str]:
        """Return the columns of the target."""
        try:
            return self.check_target(plan)
        except ConfigError as error:
            raise OperatorError(
                f"{settings.name}, {plan.source}",
                error.message,
                "If the column belongs to a dropped column of the source, rename it or drop it in the warehouse; else "
                "give it a type that holds the new values (ALTER TABLE ... ALTER COLUMN ... TYPE ... USING ...).",
            ) from None

    def _has_all_changes(self, second: SecondInstance) -> bool:
        """Return whether both change tables still hold every change since the new columns were added."""
        switch, start = second.switch, second.table_snapshot.oldest
        first = self.snapshots().read_snapshot([switch.table], {switch.table: switch.old.name}).tables[0]
        if first.feed is None or first.feed.identity != switch.old:
            return False
        since = switch.since or first.feed.start
        is_whole = isinstance(first.oldest, Position) and first.oldest <= since
        return is_whole and isinstance(start, Position) and start <= second.instance.start


def _select_able(
    instances: Sequence[LivingInstance], details: Mapping[str, TableDetails], columns: Sequence[str]
) -> LivingInstance | None:
    """Return the first instance that captures the columns."""
    return next(
        (each for each in instances if (found := details.get(each.identity.name)) and found.captures(columns)), None
    )
