"""The watch for schema drift: compare tables with their recorded shapes, record events, raise alerts, hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.core.alert import Alert
from floodmark.core.alerts import COLUMNS_LEFT_OUT, columns_left_out, columns_left_out_key
from floodmark.core.capture import SourceUser
from floodmark.core.drift import (
    CDC_DRIFT_WORDS,
    SCHEMA_DRIFT,
    DriftWords,
    LivingInstance,
    RowsAtRisk,
    advise,
    build_proposal,
    describe,
    describe_ddl,
    describe_effect,
    takes_along,
)
from floodmark.core.errors import FloodmarkError
from floodmark.core.naming import strictest_naming
from floodmark.core.planning import pinned_feeds
from floodmark.core.schema import TableName
from floodmark.core.settings import DriftClass, DriftPolicy, Naming, PipelineSettings, TableSettings, TemporalPolicy
from floodmark.core.shapes import (
    Absence,
    DdlEntry,
    Difference,
    Explained,
    TableShape,
    added_column,
    as_captured_by,
    classify_absence,
    compare_shapes,
    explain,
    is_as_known,
    is_behind,
    is_named,
    known_as,
    mentions,
    select_policy,
    stored,
    unsupported_reason,
)
from floodmark.core.snapshot import SourceSnapshot, SourceWords, TableSnapshot, TableState
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports import Source
from floodmark.sync.records import (
    DriftEvent,
    DriftFacts,
    DriftFinding,
    DriftSource,
    Examined,
    Hold,
    KnownTable,
    TableDetails,
    newest,
)
from floodmark.sync.window import require_origin

if TYPE_CHECKING:
    from floodmark.postgres.ledger.drift import PostgresDriftLedger

_LOG = logging.getLogger(__name__)
DETAILS_SECONDS = 3600.0
"""The age from which the details of a table are read that is as it was known."""


@dataclass(frozen=True, slots=True)
class WatchedSource:
    """A source with the pipelines that read it, and the places where its drift is recorded and reported."""

    name: str
    pipelines: Sequence[PipelineSettings]
    """All that read the source, since an event may concern several."""
    details: Callable[[], DriftSource]
    ledger: PostgresDriftLedger
    alerts: Alerts
    words: DriftWords = CDC_DRIFT_WORDS

    def list_events(self) -> Sequence[DriftEvent]:
        """Return the events of the source, the oldest first."""
        return self.ledger.list_events(self.name)

    def list_instances(self) -> Sequence[LivingInstance]:
        """Return all capture instances that the login may see."""
        return self.details().read_drift({}).instances

    def find_user(self) -> SourceUser | None:
        """Return the login that reads the source; None where a table has no capture instances."""
        return self.details().read_drift({}).user

    def read_details(self, tables: Mapping[str, TableName]) -> Mapping[str, TableDetails]:
        """Return the details of those capture instances that exist. tables: their source tables, by instance."""
        return self.details().read_drift(tables).details


# --------------------------------------------------------------------------------------------------------------------
# Findings of drift with their policies, as the ledger records them, and the alert about an event.


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings about one table.

    Two sources may have the table, and even its capture instance, in common: restored copies of one database.
    """

    source: WatchedSource
    table: TableName
    names: Collection[TableName]
    """The names of the table in the configuration of the pipelines."""
    facts: DriftFacts
    """All capture instances of the source, and the login that reads it."""
    words: SourceWords

    def of_absence(self, known: TableShape, snapshot: SourceSnapshot, table_snapshot: TableSnapshot) -> DriftFinding:
        was = known.identity
        moved = [
            living.table
            for living in self.facts.instances
            if (living.identity.object_id, living.identity.created_at) == (was.object_id, was.created_at)
        ]
        absence = Absence(snapshot.cdc_enabled, table_snapshot.exists, moved[0] if moved else None)
        explained = Explained(classify_absence(known, absence, self.words))
        return self._finding(explained, known, [])

    def of_change(
        self,
        known: KnownTable | None,
        seen: TableShape,
        history: Sequence[DdlEntry],
        elsewhere: TableShape | None = None,
    ) -> list[DriftFinding]:
        """elsewhere: how the table was last seen under another capture instance."""
        if known is None:
            return self._of_first_comparison(seen, history, elsewhere)
        before = known.shape
        is_other = before.identity != seen.identity
        fresh = [entry for entry in history if is_other or before.last_ddl is None or entry.position > before.last_ddl]
        found = explain(compare_shapes(before, seen, self._temporal(), self.words, self._naming()), fresh)
        news = [each for explained in found if (each := self._as_news(explained, seen)) is not None]
        return [self._finding(each, seen, news) for each in news]

    def _of_first_comparison(
        self, seen: TableShape, history: Sequence[DdlEntry], elsewhere: TableShape | None
    ) -> list[DriftFinding]:
        """Return the drift that the history and the column ids still show from the time before.

        A column left out on purpose, when the instance was made, is no drift. Earlier types are known only of a table
        that was read from another instance, and a target that is made now gets the present ones.
        """
        reported = self._reported_columns()
        added = [
            added_column(column, self._naming())
            for column in seen.uncaptured
            if column.name not in reported and any(mentions(entry.text, column.name) for entry in history)
        ]
        dropped = [Difference(DriftClass.COLUMN_DROPPED, name) for name in seen.lost]
        changed = compare_shapes(as_captured_by(seen, elsewhere), seen, self._temporal()) if elsewhere else ()
        found = explain([*added, *dropped, *changed], history)
        findings = [self._finding(each, seen, found) for each in found]
        return [
            replace(each, policies=dict.fromkeys(each.policies, DriftPolicy.IGNORE), proposal="")
            if each.explained.difference.kind is DriftClass.UNKNOWN
            else each
            for each in findings
        ]

    def _as_news(self, each: Explained, seen: TableShape) -> Explained | None:
        """Return the finding, as an added column where its statement added one.

        None for a statement of an earlier event, which was found before the history had it. A column that existed at
        the first check, before the history had it, was taken for one left out on purpose.
        """
        if each.difference.kind is not DriftClass.UNKNOWN:
            return each
        if self.source.ledger.explain_later(self.source.name, seen.identity, each.entries[0]):
            return None
        reported = self._reported_columns()
        for column in seen.uncaptured:
            added = added_column(column, self._naming())
            if column.name not in reported and is_behind(each.entries[0], added):
                return Explained(added, each.entries)
        return each

    def _reported_columns(self) -> set[str | None]:
        """Return the added columns that already have an event, decided or undecided."""
        return {
            event.explained.difference.column
            for event in self.source.list_events()
            if event.table == self.table and event.explained.difference.kind is DriftClass.COLUMN_ADDED
        }

    def _finding(self, each: Explained, shape: TableShape, found: Sequence[Explained]) -> DriftFinding:
        """Return the finding with the policies of the pipelines that read the instance. found: all findings."""
        instance = shape.identity.name.casefold()
        policies = {
            pipeline.name: select_policy(table.drift, each.difference, declares_key=bool(table.key))
            for pipeline, table in self._readers()
            if (table.capture_instance or instance).casefold() == instance
        }
        proposal = self._proposal(shape, found) if DriftPolicy.PROPOSE in policies.values() else ""
        return DriftFinding(
            each, policies, proposal, {pipeline.name: table.source for pipeline, table in self._readers()}
        )

    def _proposal(self, seen: TableShape, found: Sequence[Explained]) -> str:
        """Return the proposal for all added columns that are not captured yet: one second instance captures all."""
        mine = [living for living in self.facts.instances if living.identity == seen.identity]
        if not mine:
            return ""
        earlier = [
            event.explained.difference
            for event in self.source.list_events()
            if event.approved_at is None and event.table == self.table
        ]
        wanted = {
            difference.column
            for difference in (*earlier, *(each.difference for each in found))
            if difference.kind is DriftClass.COLUMN_ADDED
        }
        naming = self._naming()
        added = [
            column.name
            for column in seen.uncaptured
            if column.name in wanted and not unsupported_reason(column, naming)
        ]
        if not added:
            return ""
        captured = [column.name for column in seen.captured]
        return build_proposal(mine[0], captured, added, self.facts.instances, user=self.facts.user).text

    def _readers(self) -> list[tuple[PipelineSettings, TableSettings]]:
        return [
            (pipeline, table)
            for pipeline in self.source.pipelines
            for table in pipeline.tables
            if table.source in self.names
        ]

    def _temporal(self) -> TemporalPolicy:
        """Return the stricter policy where pipelines differ: for exact text, a finer time is another kind of value."""
        chosen = {table.temporal for _, table in self._readers()}
        return TemporalPolicy.TEXT if TemporalPolicy.TEXT in chosen else TemporalPolicy.TRUNCATE

    def _naming(self) -> Naming:
        return strictest_naming(table for _, table in self._readers())


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


# --------------------------------------------------------------------------------------------------------------------
# The watch of a source for schema drift: compare tables with their recorded shapes, record events, raise alerts, hold.
#
# Each run calls ``DriftWatch.examine`` before it plans; it reads details only where something differs. So a table whose
# new shape would not fit its target never gets into a window. ``watch`` reads the details of every table once an hour
# (``app.upkeep.is_check_due``). Each event is recorded once (see ``ledger.drift``).


@dataclass(frozen=True, slots=True)
class TableDiff:
    """A table and its recorded shape."""

    table_snapshot: TableSnapshot
    table: TableName
    """See ``core.shapes``."""
    name: str
    """The name of its capture instance."""
    known: KnownTable | None
    elsewhere: TableShape | None = None
    """Its last known shape under another capture instance."""
    gone: tuple[KnownTable, ...] = ()
    """Its known states under other feeds that no longer exist."""

    @property
    def is_new(self) -> bool:
        """Whether the details of the table have to be read."""
        if self.table_snapshot.feed is None:
            # A revoked permission hides an instance as well; that has a verdict of its own, and is no drift.
            return self.known is not None and self.known.absent is None and self.table_snapshot.permitted
        return (
            self.known is None
            or self.known.absent is not None
            or not is_as_known(self.table_snapshot, self.known.shape)
        )


@dataclass(frozen=True, slots=True)
class DriftWatch:
    """The drift watch of one source."""

    source: WatchedSource
    drop_staging: Callable[[int], None]
    """Drops the staging tables of a window."""
    details_seconds: float = DETAILS_SECONDS

    def examine(
        self, settings: PipelineSettings, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
    ) -> Examined:
        """Check the snapshot of a pipeline's run, record what is new, and return it with the pipeline's holds."""
        shapes = self._compare(snapshot, pinned_feeds(settings, states), closely=False)
        self._report()
        self._report_columns(settings, snapshot)
        tables = tuple(
            _without_lost(table_snapshot, shapes.get(table_snapshot.table)) for table_snapshot in snapshot.tables
        )
        return Examined(replace(snapshot, tables=tables), self.source.ledger.list_holds(settings.name))

    def watch(self, source: Source, states: Mapping[str, Mapping[TableName, TableState]]) -> list[Hold]:
        """Check every table of the source, and its details where they are due. Return all holds. states: by pipeline.

        A table is checked once for all pipelines that read it, or once per capture instance where they read several.
        """
        all_pins = [
            {**dict.fromkeys(settings.sources), **pinned_feeds(settings, states[settings.name])}
            for settings in self.source.pipelines
        ]
        for pins in _rounds(all_pins):
            named = {table: name for table, name in pins.items() if name is not None}
            snapshot = source.read_snapshot(list(pins), named)
            for settings in self.source.pipelines:
                require_origin(settings, snapshot, states[settings.name])
            self._compare(snapshot, named, closely=True)
        self._report()
        return [
            hold for settings in self.source.pipelines for hold in self.source.ledger.list_holds(settings.name).values()
        ]

    def _compare(
        self, snapshot: SourceSnapshot, pinned: Mapping[TableName, str], *, closely: bool
    ) -> dict[TableName, TableShape]:
        """Record and return the current shapes of the tables.

        closely: read the details also of tables that match their recorded shape, for the DDL history and for columns
        that are not captured, where that was last done an hour ago or an event still lacks its DDL.
        """
        diffs = self._match(snapshot, pinned)
        awaited = self.awaiting_ddl() if closely else frozenset()
        chosen = [each for each in diffs if each.is_new or (closely and self._is_due(each, awaited))]
        shapes = {each.table_snapshot.table: each.known.shape for each in diffs if each.known is not None}
        if chosen:
            asked = {each.name: each.table_snapshot.feed.table.name for each in chosen if each.table_snapshot.feed}
            facts = self.source.details().read_drift(asked)
            written: dict[tuple[TableName, str], TableShape | None] = {}
            for each in chosen:
                seen = (each.table, each.name)
                if seen not in written:
                    written[seen] = self._write(snapshot, each, facts)
                if (shape := written[seen]) is not None:
                    shapes[each.table_snapshot.table] = shape
        return shapes

    def _is_due(self, each: TableDiff, awaited: frozenset[str]) -> bool:
        """Return whether the details of a table are read that is as it was known."""
        if each.table_snapshot.feed is None or each.known is None:
            return False
        age = each.known.age_seconds
        return age is None or age >= self.details_seconds or each.name in awaited

    def awaiting_ddl(self) -> frozenset[str]:
        """Return the instances with an undecided event about a column whose DDL the history did not have."""
        return frozenset(
            event.identity.name
            for event in self.source.list_events()
            if event.approved_at is None and not event.explained.entries and event.explained.difference.column
        )

    def _match(self, snapshot: SourceSnapshot, pinned: Mapping[TableName, str]) -> list[TableDiff]:
        known = self.source.ledger.read_known(self.source.name)
        diffs = []
        for table_snapshot in snapshot.tables:
            table = known_as(table_snapshot, ((table, each.shape) for (table, _), each in known.items()))
            states = {name: each for (of, name), each in known.items() if of == table}
            instance = table_snapshot.feed
            name = (
                instance.identity.name if instance else pinned.get(table_snapshot.table) or next(reversed(states), None)
            )
            if name is not None:
                others = [state for other, state in states.items() if other != name]
                newest_other = max(others, key=_recency, default=None)
                elsewhere = newest_other.shape if newest_other else None
                gone = tuple(state for state in others if state.absent is not None)
                diffs.append(TableDiff(table_snapshot, table, name, states.get(name), elsewhere, gone))
        return diffs

    def _write(self, snapshot: SourceSnapshot, each: TableDiff, facts: DriftFacts) -> TableShape | None:
        """Record and return the current shape of the table; None where it disappeared during the check."""
        instance = each.table_snapshot.feed
        if instance is None:
            assert each.known is not None  # noqa: S101  (checked by is_new)
            findings = self._findings(each, each.known.shape.name, facts, snapshot.words)
            found = findings.of_absence(each.known.shape, snapshot, each.table_snapshot)
            self._record(each, KnownTable(each.known.shape, found.explained.difference.kind.value), [found])
            return each.known.shape
        details = facts.details.get(each.name)
        if details is None:
            return None
        known = each.known if self._is_of_this(each) else None
        table = stored(instance.table, details.lost)
        shape = TableShape(
            name=table.name,
            identity=instance.identity,
            captured=table.columns,
            lost=details.lost,
            uncaptured=details.uncaptured,
            key=table.key,
            max_column_id=each.table_snapshot.max_column_id,
            last_ddl=newest(details.history) or (known.shape.last_ddl if known else None),
        )
        if KnownTable(shape) == each.known:
            self.source.ledger.record_unchanged(self.source.name, each.table, each.name)
            return shape
        findings = self._findings(each, instance.table.name, facts, snapshot.words)
        if self._record(each, KnownTable(shape), findings.of_change(known, shape, details.history, each.elsewhere)):
            if each.known is not None and each.known.absent is not None:
                self._end_absence(each.table, each.name)
            if not self.source.words.has_instances:
                self._replace_gone(each)
        return shape

    def _record(self, each: TableDiff, seen: KnownTable, found: Sequence[DriftFinding]) -> bool:
        if not self.source.ledger.record(self.source.name, each.table, each.known, seen, found):
            return False
        for finding in found:
            _LOG.warning("%s: %s.", each.table, describe(finding.explained.difference))
        return True

    def _replace_gone(self, each: TableDiff) -> None:
        """End the absence of the former feeds of a table, whose place the one that was found takes."""
        for gone in each.gone:
            if self.source.ledger.record(self.source.name, each.table, gone, replace(gone, absent=None), []):
                self._end_absence(each.table, gone.shape.identity.name)

    def _end_absence(self, table: TableName, feed: str) -> None:
        for event_id in self.source.ledger.end_absence(self.source.name, table, feed):
            self.source.alerts.end_alert(alert_key(event_id), f"{table} exists again.")

    def _findings(self, each: TableDiff, called: TableName, facts: DriftFacts, words: SourceWords) -> Findings:
        others = {living.table for living in facts.instances}
        named = {table.source for settings in self.source.pipelines for table in settings.tables}
        names = frozenset(name for name in named if is_named(name, each.table, called, others))
        return Findings(self.source, each.table, names, facts, words)

    def _is_of_this(self, each: TableDiff) -> bool:
        """Return whether the recorded shape applies to the current capture instance of that name.

        It does not where the instance is another one and no pipeline read the former one. Switches take free names, so
        that an instance can have the name of one that was dropped two switches before.
        """
        instance = each.table_snapshot.feed
        if each.known is None or instance is None:
            return False
        before = each.known.shape.identity
        if before == instance.identity:
            return True
        readers = self.source.ledger.list_readers(before)
        return any(settings.name in readers for settings in self.source.pipelines)

    def _report(self) -> None:
        """Raise the alerts about events that were not reported yet.

        Events are recorded before they are reported: where a process dies in between, the next check reports them.
        """
        events = self.source.list_events()
        for event in (each for each in events if not each.reported):
            alert = build_drift_alert(event, self._read_risk(event), proposed_with(event, events), self.source.words)
            if alert is not None:
                self.source.alerts.raise_alert(alert)
            self.source.ledger.mark_reported(event.event_id)

    def _report_columns(self, settings: PipelineSettings, snapshot: SourceSnapshot) -> None:
        """Raise the alert about each table whose instance was not chosen and has fewer columns than an older one.

        A snapshot may have some of the tables alone: the alerts about the others stay as they are.
        """
        if not self.source.words.has_instances:
            return
        chosen = {table.source for table in settings.tables if table.capture_instance}
        examined = {each.table for each in snapshot.tables}
        kept = [columns_left_out_key(settings.name, table) for table in settings.sources if table not in examined]
        for each in snapshot.tables:
            if each.feed is not None and each.wider is not None and each.table not in chosen:
                alert = columns_left_out(settings.name, each.table, each.feed.identity.name, each.wider)
                self.source.alerts.raise_alert(alert)
                kept.append(alert.event_key)
        self.source.alerts.end_alerts(COLUMNS_LEFT_OUT, settings.name, keep=kept)

    def _read_risk(self, event: DriftEvent) -> RowsAtRisk | None:
        """Return the rows at risk of an added column of a supported type; None where they cannot be counted, so that
        the alert is not delayed."""
        difference = event.explained.difference
        if difference.kind is not DriftClass.COLUMN_ADDED or difference.obstacle or is_ignored(event):
            return None
        since = min((entry.position for entry in event.explained.entries), default=None)
        try:
            return self.source.details().read_risk(event.table, event.identity.name, since)
        except FloodmarkError as error:
            _LOG.warning("Could not count the rows with column %s of %s: %s", difference.column, event.table, error)
            return None


def _recency(state: KnownTable) -> tuple[datetime, float]:
    """Return a value that is highest for the newest feed of a table, and of equally new ones for that checked last."""
    return state.shape.identity.created_at, -(state.age_seconds or 0.0)


def _rounds(pipelines: Iterable[Mapping[TableName, str | None]]) -> list[dict[TableName, str | None]]:
    """Return as few snapshots as possible that show every table with every capture instance that is read.

    One snapshot shows one instance per table. None: the pipeline has not read any instance of the table.
    """
    rounds: list[dict[TableName, str | None]] = []
    for table, name in dict.fromkeys(pair for pins in pipelines for pair in pins.items()):
        free = next((each for each in rounds if table not in each), None)
        if free is None:
            rounds.append({table: name})
        else:
            free[table] = name
    return rounds


def _without_lost(table_snapshot: TableSnapshot, shape: TableShape | None) -> TableSnapshot:
    instance = table_snapshot.feed
    if instance is None or shape is None or instance.identity != shape.identity:
        return table_snapshot
    return replace(table_snapshot, feed=replace(instance, table=stored(instance.table, shape.lost)))
