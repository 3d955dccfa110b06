"""Findings of drift with their policies, as the ledger records them, and the alert about an event."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from floodmark.core.alert import Alert
from floodmark.core.drift.ddl import DdlEntry, Explained, explain, is_behind, mentions
from floodmark.core.drift.messages import SCHEMA_DRIFT, advise, describe, describe_ddl, describe_effect
from floodmark.core.drift.proposal import build_proposal, takes_along
from floodmark.core.drift.risk import RowsAtRisk
from floodmark.core.drift.shapes import (
    Absence,
    Difference,
    TableShape,
    added_column,
    as_captured_by,
    classify_absence,
    compare_shapes,
    select_policy,
)
from floodmark.core.drift.supported import unsupported_reason
from floodmark.core.drift.words import CDC_DRIFT_WORDS, DriftWords
from floodmark.core.policies import DriftClass, DriftPolicy, TemporalPolicy
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.source.snapshot import SourceSnapshot, TableSnapshot
from floodmark.core.source.words import CDC_WORDS, SourceWords
from floodmark.sync.ports.drift import DriftEvent, DriftFacts, DriftFinding, DriftLedger, KnownTable


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings about one table.

    Two sources may have the table, and even its capture instance, in common: restored copies of one database.
    """

    source_name: str
    pipelines: Sequence[PipelineSettings]
    """All pipelines that read the source."""
    table: TableName
    names: Collection[TableName]
    """The names of the table in the configuration of the pipelines."""
    ledger: DriftLedger
    words: SourceWords = CDC_WORDS

    def of_absence(
        self, known: TableShape, snapshot: SourceSnapshot, table_snapshot: TableSnapshot, facts: DriftFacts
    ) -> DriftFinding:
        was = known.identity
        moved = [
            living.table
            for living in facts.instances
            if (living.identity.object_id, living.identity.created_at) == (was.object_id, was.created_at)
        ]
        absence = Absence(snapshot.cdc_enabled, table_snapshot.exists, moved[0] if moved else None)
        explained = Explained(classify_absence(known, absence, self.words))
        policies = self._policies(explained.difference, known.identity.name)
        return DriftFinding(explained, policies, spelled=self._spelled())

    def of_change(
        self,
        known: KnownTable | None,
        seen: TableShape,
        history: Sequence[DdlEntry],
        facts: DriftFacts,
        elsewhere: TableShape | None = None,
    ) -> list[DriftFinding]:
        """elsewhere: how the table was last seen under another capture instance."""
        if known is None:
            return self._of_first_comparison(seen, history, facts, elsewhere)
        before = known.shape
        is_other = before.identity != seen.identity
        fresh = [entry for entry in history if is_other or before.ddl_lsn is None or entry.lsn > before.ddl_lsn]
        found = explain(compare_shapes(before, seen, self._temporal(), self.words), fresh)
        news = [self._named(each, seen) for each in found if not self._is_late(each, seen)]
        return [self._finding(each, seen, news, facts) for each in news]

    def _of_first_comparison(
        self, seen: TableShape, history: Sequence[DdlEntry], facts: DriftFacts, elsewhere: TableShape | None
    ) -> list[DriftFinding]:
        """Return the drift that the history and the column ids still show from the time before.

        A column left out on purpose, when the instance was made, is no drift. Earlier types are known only of a table
        that was read from another instance, and a target that is made now gets the present ones.
        """
        reported = self._reported_columns()
        added = [
            added_column(column)
            for column in seen.uncaptured
            if column.name not in reported and any(mentions(entry.text, column.name) for entry in history)
        ]
        dropped = [Difference(DriftClass.COLUMN_DROPPED, name) for name in seen.lost]
        changed = compare_shapes(as_captured_by(seen, elsewhere), seen, self._temporal()) if elsewhere else ()
        found = explain([*added, *dropped, *changed], history)
        findings = [self._finding(each, seen, found, facts) for each in found]
        return [
            replace(each, policies=dict.fromkeys(each.policies, DriftPolicy.IGNORE), proposal="")
            if each.explained.difference.kind is DriftClass.UNKNOWN
            else each
            for each in findings
        ]

    def _is_late(self, each: Explained, seen: TableShape) -> bool:
        """Return whether the statement belongs to an earlier event, which was found before the history had it."""
        if each.difference.kind is not DriftClass.UNKNOWN:
            return False
        return self.ledger.explain_later(self.source_name, seen.identity, each.entries[0])

    def _named(self, each: Explained, seen: TableShape) -> Explained:
        """Return the finding as an added column where its statement added one.

        A column that existed at the first check, before the history had it, was taken for one left out on purpose.
        """
        if each.difference.kind is not DriftClass.UNKNOWN:
            return each
        reported = self._reported_columns()
        for column in seen.uncaptured:
            added = added_column(column)
            if column.name not in reported and is_behind(each.entries[0], added):
                return Explained(added, each.entries)
        return each

    def _reported_columns(self) -> set[str | None]:
        """Return the added columns that already have an event, decided or undecided."""
        return {
            event.explained.difference.column
            for event in self.ledger.list_events(self.source_name)
            if event.table == self.table and event.explained.difference.kind is DriftClass.COLUMN_ADDED
        }

    def _finding(
        self, each: Explained, seen: TableShape, found: Sequence[Explained], facts: DriftFacts
    ) -> DriftFinding:
        policies = self._policies(each.difference, seen.identity.name)
        proposal = ""
        if DriftPolicy.PROPOSE in policies.values():
            proposal = self._proposal(seen, found, facts)
        return DriftFinding(each, policies, proposal, self._spelled())

    def _proposal(self, seen: TableShape, found: Sequence[Explained], facts: DriftFacts) -> str:
        """Return the proposal for all added columns that are not captured yet: one second instance captures all."""
        mine = [living for living in facts.instances if living.identity == seen.identity]
        if not mine:
            return ""
        earlier = [
            event.explained.difference
            for event in self.ledger.list_events(self.source_name)
            if event.approved_at is None and event.table == self.table
        ]
        wanted = {
            difference.column
            for difference in (*earlier, *(each.difference for each in found))
            if difference.kind is DriftClass.COLUMN_ADDED
        }
        added = [column.name for column in seen.uncaptured if column.name in wanted and not unsupported_reason(column)]
        if not added:
            return ""
        return build_proposal(mine[0], [column.name for column in seen.captured], added, facts.instances).text

    def _policies(self, difference: Difference, instance: str) -> dict[str, DriftPolicy]:
        return {
            pipeline.name: select_policy(table.drift, difference, declares_key=bool(table.key))
            for pipeline, table in self._readers(instance)
        }

    def _readers(self, instance: str | None = None) -> list[tuple[PipelineSettings, TableSettings]]:
        return [
            (pipeline, table)
            for pipeline in self.pipelines
            for table in pipeline.tables
            if table.source in self.names
            and (not table.capture_instance or not instance or table.capture_instance.casefold() == instance.casefold())
        ]

    def _spelled(self) -> dict[str, TableName]:
        return {pipeline.name: table.source for pipeline, table in self._readers()}

    def _temporal(self) -> TemporalPolicy:
        """Return the stricter policy where pipelines differ: for exact text, a finer time is another kind of value."""
        chosen = {table.temporal for _, table in self._readers()}
        return TemporalPolicy.TEXT if TemporalPolicy.TEXT in chosen else TemporalPolicy.TRUNCATE


def alert_key(event_id: int) -> str:
    """Return the key of the alert about a drift event."""
    return f"{SCHEMA_DRIFT}:{event_id}"


def is_ignored(event: DriftEvent) -> bool:
    """Return whether every pipeline ignores the event."""
    return all(policy is DriftPolicy.IGNORE for policy in event.policies.values())


def proposed_with(event: DriftEvent, events: Sequence[DriftEvent]) -> list[DriftEvent]:
    """Return the events of the other undecided columns that the T-SQL of the event captures as well."""
    return [
        other
        for other in events
        if event.proposal
        and other.event_id != event.event_id
        and other.table == event.table
        and other.source == event.source
        and other.proposal
        and other.approved_at is None
        and takes_along(event.proposal, other.explained.difference.column or "")
    ]


def describe_shared_proposal(others: Sequence[DriftEvent]) -> str:
    """Return a sentence about what is proposed together with an event, "" for nothing."""
    named = (
        f"column {each.explained.difference.column} {each.explained.difference.after} (event {each.event_id})"
        for each in others
    )
    return f"It would be captured together with {' and '.join(named)}." if others else ""


def build_drift_alert(
    event: DriftEvent,
    risk: RowsAtRisk | None = None,
    others: Sequence[DriftEvent] = (),
    words: DriftWords = CDC_DRIFT_WORDS,
) -> Alert | None:
    """Return the alert about an event; None where every pipeline ignores it.

    risk: the rows at risk of an added column. others: the events ``proposed_with`` it.
    """
    if is_ignored(event):
        return None
    difference, ddl = event.explained.difference, describe_ddl(event.explained, words)
    return Alert(
        kind=SCHEMA_DRIFT,
        subject=event.source,
        table=event.table,
        what=" ".join(
            filter(
                None,
                (f"{event.table}: {describe(difference)}.", describe_shared_proposal(others), str(risk or ""), ddl),
            )
        ),
        where=f"source {event.source}, table {event.table}{words.where(event.identity)}"
        + (f", column {difference.column}" if difference.column else ""),
        means=describe_effect(difference, event.policies, words),
        do=advise(difference, event.event_id, event.source, words, is_held=bool(event.held), proposal=event.proposal),
        event_key=alert_key(event.event_id),
    )
