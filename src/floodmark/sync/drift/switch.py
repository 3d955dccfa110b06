"""Proposals about new columns and the operator's decisions: a switch to a second capture instance, or none.

A proposal is made when a column is found (``sync.drift.events``) and made again when the operator reads it. The
approved text is run word by word, so it must fit the source as it is then. One proposal covers all new columns of a
table. The steps of a switch are in ``sync.drift.switch_steps``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from floodmark.core.drift.proposal import Proposal, build_proposal, spelled_by_server
from floodmark.core.drift.shapes import stored
from floodmark.core.drift.supported import unsupported_reason
from floodmark.core.drift.switch import InstanceSwitch, PlannedSwitch
from floodmark.core.errors import OperatorError
from floodmark.core.policies import DriftClass, DriftPolicy
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.window.planning import pinned_instances
from floodmark.sync.alerts import Alerts
from floodmark.sync.drift.events import alert_key
from floodmark.sync.ports.drift import DriftEvent, DriftLedger, DriftSource
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.source import Source
from floodmark.sync.ports.switch import SwitchLedger


@dataclass(frozen=True, slots=True)
class SwitchPlanner:
    """The proposals and decisions of one source."""

    source_name: str
    pipelines: Sequence[PipelineSettings]
    """All pipelines that read the source."""
    source: Callable[[], Source]
    drift_source: Callable[[], DriftSource]
    ledger: Ledger
    drift: DriftLedger
    switches: SwitchLedger
    alerts: Alerts

    def list_proposed(self) -> list[tuple[DriftEvent, Proposal]]:
        """Return the newest undecided event of each table, with its current proposal."""
        under_way = {switch.table for switch in self.switches.list_switches(self.source_name)}
        asked = {table: events for table, events in self._undecided().items() if table not in under_way}
        proposals = {table: self._refresh(table, events) for table, events in asked.items()}
        return [
            (replace(events[-1], proposal=proposal.text), proposal)
            for table, events in asked.items()
            if (proposal := proposals[table]) is not None
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
        if proposal.text != event.proposal:
            raise OperatorError(
                f"drift event {event_id}",
                "the source has changed since this was proposed; nothing was done. The new "
                f"proposal is:\n{proposal.text}",
                "Read it and approve again.",
            )
        since = [entry.lsn for each in events for entry in each.explained.entries]
        planned = PlannedSwitch(
            source=self.source_name,
            table=table,
            old=proposal.old.identity,
            name=proposal.name,
            added=proposal.added,
            columns=proposal.columns,
            enabling=proposal.enabling,
            drops=proposal.drops.identity.name if proposal.drops else "",
            since=min(since, default=None) if all(each.explained.entries for each in events) else None,
        )
        switch = self.switches.open_switch(planned, [each.event_id for each in events], by)
        for each in events:
            self.alerts.end_alert(
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
            self.drift.reject(each.event_id, by)
            column = each.explained.difference.column
            self.alerts.end_alert(
                alert_key(each.event_id), f"{by} rejected it: {each.table} continues without column {column}."
            )
        return rejected or [event]

    def _undecided(self) -> dict[TableName, list[DriftEvent]]:
        """Return the undecided events, the oldest first, by table as the source spells it: pipelines may use another
        case."""
        events = [
            event
            for event in self.drift.list_events(self.source_name)
            if event.approved_at is None and event.proposal and DriftPolicy.PROPOSE in event.policies.values()
        ]
        living = self.drift_source().read_drift({}).instances if events else ()
        undecided: dict[TableName, list[DriftEvent]] = {}
        for event in events:
            undecided.setdefault(spelled_by_server(event.table, living), []).append(event)
        return undecided

    def _asked_with(self, event: DriftEvent) -> tuple[TableName, list[DriftEvent]]:
        """Return the event's table, with all events of it that are decided together."""
        ids = {each.event_id: (table, events) for table, events in self._undecided().items() for each in events}
        return ids.get(event.event_id, (event.table, []))

    def _find(self, event_id: int) -> DriftEvent:
        event = next((each for each in self.drift.list_events(self.source_name) if each.event_id == event_id), None)
        if event is None:
            raise OperatorError(
                f"drift event {event_id}", f"source {self.source_name} has no such event.", "See: floodmark drift list."
            )
        if event.approved_at is not None:
            decided = "rejected" if event.is_rejected else "approved"
            raise OperatorError(
                f"drift event {event_id}", f"{event.approved_by} has already {decided} it.", "Nothing is to be done."
            )
        if not event.proposal:
            raise OperatorError(f"drift event {event_id}", "nothing is proposed about it.")
        return event

    def _refresh(self, table: TableName, events: Sequence[DriftEvent]) -> Proposal | None:
        """Return the current proposal, None for none, and record it with the undecided events of the table."""
        proposal = self._propose(table, events)
        for event in events:
            if proposal is not None and event.proposal != proposal.text:
                self.drift.replace_proposal(event.event_id, proposal.text)
        return proposal

    def _propose(self, table: TableName, events: Sequence[DriftEvent]) -> Proposal | None:
        asking = {name for event in events for name, policy in event.policies.items() if policy is DriftPolicy.PROPOSE}
        read_drift = self.drift_source().read_drift
        living = read_drift({}).instances
        found = [
            (settings, name)
            for settings in self.pipelines
            if settings.name in asking
            for name in settings.sources
            if spelled_by_server(name, living) == table
        ]
        if not found:
            return None
        settings, name = found[0]
        pinned = pinned_instances(settings, self.ledger.read_tables(settings.name))
        instance = self.source().read_snapshot([name], pinned).tables[0].instance
        if instance is None:
            return None
        names = [each.identity.name for each in living if each.table == instance.table.name]
        facts = read_drift(dict.fromkeys(names, instance.table.name))
        mine = next((each for each in living if each.identity == instance.identity), None)
        details = facts.details.get(instance.identity.name)
        if mine is None or details is None:
            return None
        wanted = {
            each.explained.difference.column
            for each in events
            if each.explained.difference.kind is DriftClass.COLUMN_ADDED
        }
        captured = [column.name for column in stored(instance.table, details.lost).columns]
        added = [
            column.name for column in details.uncaptured if column.name in wanted and not unsupported_reason(column)
        ]
        if not added:
            return None
        able = [
            each
            for each in living
            if each.table == mine.table
            and each != mine
            and each.identity.name in facts.details
            and facts.details[each.identity.name].captures([*captured, *added])
        ]
        proposal = build_proposal(mine, captured, added, living, able[0] if able else None)
        return replace(
            proposal, explained=tuple(each.explained for each in events if each.explained.difference.column in added)
        )
