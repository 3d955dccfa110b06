"""The watch for schema drift: compare tables with their recorded shapes, record events, raise alerts, hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.core.alert import Alert
from floodmark.core.alerts import COLUMNS_LEFT_OUT, columns_left_out, columns_left_out_key
from floodmark.core.drift.proposals import (
    CDC_DRIFT_WORDS,
    SCHEMA_DRIFT,
    DriftWords,
    RowsAtRisk,
    advise,
    build_proposal,
    describe,
    describe_ddl,
    describe_effect,
    describe_hold,
    takes_along,
)
from floodmark.core.drift.shapes import (
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
from floodmark.core.errors import FloodmarkError, TableHeldError
from floodmark.core.planning import pinned_instances
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.settings import DriftClass, DriftPolicy, PipelineSettings, TableSettings, TemporalPolicy
from floodmark.core.snapshot import (
    CDC_WORDS,
    CaptureInstance,
    SourceSnapshot,
    SourceWords,
    TableSnapshot,
    TableState,
    Validity,
    Verdict,
)
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports import Source
from floodmark.sync.records import DriftEvent, DriftFacts, DriftFinding, DriftSource, Examined, Hold, KnownTable, newest
from floodmark.sync.window import require_origin

if TYPE_CHECKING:
    from floodmark.postgres.ledger.drift import PostgresDriftLedger

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# Findings of drift with their policies, as the ledger records them, and the alert about an event.


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
    ledger: PostgresDriftLedger
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


# --------------------------------------------------------------------------------------------------------------------
# The watch of a source for schema drift: compare tables with their recorded shapes, record events, raise alerts, hold.
#
# The drift DAG calls ``DriftWatch.watch``, which reads the details of every table once an hour. Each run calls
# ``examine`` before it plans; it reads details only where something differs. So a table whose new shape would not fit
# its target never gets into a window, however seldom the DAG runs. Each event is recorded once (see ``ledger.drift``).


DETAILS_SECONDS = 3600.0
"""The age from which the details of a table are read that is as it was known."""


@dataclass(frozen=True, slots=True)
class TableDiff:
    """A table and its recorded shape."""

    table_snapshot: TableSnapshot
    table: TableName
    """See ``core.drift.shapes``."""
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
        if self.table_snapshot.instance is None:
            # A revoked permission hides an instance as well; that has a verdict of its own, and is no drift.
            return self.known is not None and self.known.absent is None and self.table_snapshot.permitted
        return (
            self.known is None
            or self.known.absent is not None
            or not is_as_known(self.table_snapshot, self.known.shape)
        )


class DriftWatch:
    """The drift watch of one source.

    pipelines: all that read the source, since an event may concern several. source: called when details are read.
    details_seconds: see ``DETAILS_SECONDS``. words: of the kind of the source.
    """

    def __init__(
        self,
        source_name: str,
        pipelines: Sequence[PipelineSettings],
        *,
        source: Callable[[], DriftSource],
        ledger: PostgresDriftLedger,
        alerts: Alerts,
        drop_staging: Callable[[int], None],
        details_seconds: float = DETAILS_SECONDS,
        words: DriftWords = CDC_DRIFT_WORDS,
    ) -> None:
        self._name = source_name
        self._pipelines = pipelines
        self._source = source
        self._ledger = ledger
        self._alerts = alerts
        self._drop_staging = drop_staging
        self._details_seconds = details_seconds
        self._words = words

    def drop_staging(self, window_id: int) -> None:
        """Drop the staging tables of a window."""
        self._drop_staging(window_id)

    def examine(
        self, settings: PipelineSettings, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
    ) -> Examined:
        """Check the snapshot of a pipeline's run, record what is new, and return it with the pipeline's holds."""
        shapes = self._compare(snapshot, pinned_instances(settings, states), closely=False)
        self._report()
        self._report_columns(settings, snapshot)
        tables = tuple(
            _without_lost(table_snapshot, shapes.get(table_snapshot.table)) for table_snapshot in snapshot.tables
        )
        return Examined(replace(snapshot, tables=tables), self._ledger.list_holds(settings.name))

    def watch(self, source: Source, states: Mapping[str, Mapping[TableName, TableState]]) -> list[Hold]:
        """Check every table of the source, and its details where they are due. Return all holds. states: by pipeline.

        A table is checked once for all pipelines that read it, or once per capture instance where they read several.
        """
        for pins in _rounds(_pins(settings, states[settings.name]) for settings in self._pipelines):
            named = {table: name for table, name in pins.items() if name is not None}
            snapshot = source.read_snapshot(list(pins), named)
            for settings in self._pipelines:
                require_origin(settings, snapshot, states[settings.name])
            self._compare(snapshot, named, closely=True)
        self._report()
        return [hold for settings in self._pipelines for hold in self._ledger.list_holds(settings.name).values()]

    def _compare(
        self, snapshot: SourceSnapshot, pinned: Mapping[TableName, str], *, closely: bool
    ) -> dict[TableName, TableShape]:
        """Record and return the current shapes of the tables.

        closely: read the details also of tables that match their recorded shape, for the DDL history and for columns
        that are not captured, where that was last done an hour ago or an event still lacks its DDL.
        """
        diffs = self._match(snapshot, pinned)
        awaited = self._awaiting_ddl() if closely else frozenset()
        chosen = [each for each in diffs if each.is_new or (closely and self._is_due(each, awaited))]
        shapes = {each.table_snapshot.table: each.known.shape for each in diffs if each.known is not None}
        if chosen:
            asked = {
                each.name: each.table_snapshot.instance.table.name for each in chosen if each.table_snapshot.instance
            }
            facts = self._source().read_drift(asked)
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
        if each.table_snapshot.instance is None or each.known is None:
            return False
        age = each.known.age_seconds
        return age is None or age >= self._details_seconds or each.name in awaited

    def _awaiting_ddl(self) -> frozenset[str]:
        """Return the instances with an undecided event about a column whose DDL the history did not have."""
        return frozenset(
            event.identity.name
            for event in self._ledger.list_events(self._name)
            if event.approved_at is None and not event.explained.entries and event.explained.difference.column
        )

    def _match(self, snapshot: SourceSnapshot, pinned: Mapping[TableName, str]) -> list[TableDiff]:
        known = self._ledger.read_known(self._name)
        diffs = []
        for table_snapshot in snapshot.tables:
            table = known_as(table_snapshot, ((table, each.shape) for (table, _), each in known.items()))
            states = {name: each for (of, name), each in known.items() if of == table}
            last = list(states)[-1] if states else None
            name = (
                table_snapshot.instance.identity.name
                if table_snapshot.instance
                else pinned.get(table_snapshot.table) or last
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
        if each.table_snapshot.instance is None:
            assert each.known is not None  # noqa: S101  (checked by is_new)
            findings = self._findings(each, each.known.shape.name, facts, snapshot.words)
            found = findings.of_absence(each.known.shape, snapshot, each.table_snapshot, facts)
            gone = KnownTable(each.known.shape, found.explained.difference.kind.value)
            if self._ledger.record(self._name, each.table, each.known, gone, [found]):
                _LOG.warning("%s: %s.", each.table, describe(found.explained.difference))
            return each.known.shape
        details = facts.details.get(each.name)
        if details is None:
            return None
        findings = self._findings(each, each.table_snapshot.instance.table.name, facts, snapshot.words)
        known = each.known if self._is_of_this(each) else None
        shape = _shape(each.table_snapshot.instance, each.table_snapshot, details.lost, details.uncaptured)
        last = newest(details.history) or (known.shape.ddl_lsn if known else None)
        seen = KnownTable(replace(shape, ddl_lsn=last))
        if seen == each.known:
            self._ledger.record_unchanged(self._name, each.table, each.name)
            return seen.shape
        found_all = findings.of_change(known, seen.shape, details.history, facts, each.elsewhere)
        if self._ledger.record(self._name, each.table, each.known, seen, found_all):
            for finding in found_all:
                _LOG.warning("%s: %s.", each.table, describe(finding.explained.difference))
            if each.known is not None and each.known.absent is not None:
                self._end_absence(each.table, each.name)
            if not self._words.has_instances:
                self._replace_gone(each)
        return seen.shape

    def _replace_gone(self, each: TableDiff) -> None:
        """End the absence of the former feeds of a table, whose place the one that was found takes."""
        for gone in each.gone:
            if self._ledger.record(self._name, each.table, gone, replace(gone, absent=None), []):
                self._end_absence(each.table, gone.shape.identity.name)

    def _end_absence(self, table: TableName, feed: str) -> None:
        for event_id in self._ledger.end_absence(self._name, table, feed):
            self._alerts.end_alert(alert_key(event_id), f"{table} exists again.")

    def _findings(self, each: TableDiff, called: TableName, facts: DriftFacts, words: SourceWords) -> Findings:
        others = {living.table for living in facts.instances}
        named = {table.source for settings in self._pipelines for table in settings.tables}
        names = frozenset(name for name in named if is_named(name, each.table, called, others))
        return Findings(self._name, self._pipelines, each.table, names, self._ledger, words)

    def _is_of_this(self, each: TableDiff) -> bool:
        """Return whether the recorded shape applies to the current capture instance of that name.

        It does not where the instance is another one and no pipeline read the former one. Switches take free names, so
        that an instance can have the name of one that was dropped two switches before.
        """
        if each.known is None or each.table_snapshot.instance is None:
            return False
        before = each.known.shape.identity
        if before == each.table_snapshot.instance.identity:
            return True
        readers = self._ledger.list_readers(before)
        return any(settings.name in readers for settings in self._pipelines)

    def _report(self) -> None:
        """Raise the alerts about events that were not reported yet.

        Events are recorded before they are reported: where a process dies in between, the next check reports them.
        """
        events = self._ledger.list_events(self._name)
        for event in (each for each in events if not each.reported):
            alert = build_drift_alert(event, self._read_risk(event), proposed_with(event, events), self._words)
            if alert is not None:
                self._alerts.raise_alert(alert)
            self._ledger.mark_reported(event.event_id)

    def _report_columns(self, settings: PipelineSettings, snapshot: SourceSnapshot) -> None:
        """Raise the alert about each table whose instance was not chosen and has fewer columns than an older one.

        A snapshot may have some of the tables alone: the alerts about the others stay as they are.
        """
        if not self._words.has_instances:
            return
        chosen = {table.source for table in settings.tables if table.capture_instance}
        examined = {each.table for each in snapshot.tables}
        kept = [columns_left_out_key(settings.name, table) for table in settings.sources if table not in examined]
        for each in snapshot.tables:
            if each.instance is not None and each.wider is not None and each.table not in chosen:
                alert = columns_left_out(settings.name, each.table, each.instance.identity.name, each.wider)
                self._alerts.raise_alert(alert)
                kept.append(alert.event_key)
        self._alerts.end_alerts(COLUMNS_LEFT_OUT, settings.name, keep=kept)

    def _read_risk(self, event: DriftEvent) -> RowsAtRisk | None:
        """Return the rows at risk of an added column of a supported type; None where they cannot be counted, so that
        the alert is not delayed."""
        difference = event.explained.difference
        if difference.kind is not DriftClass.COLUMN_ADDED or difference.obstacle or is_ignored(event):
            return None
        since = min((entry.lsn for entry in event.explained.entries), default=None)
        try:
            return self._source().read_risk(event.table, event.identity.name, since)
        except FloodmarkError as error:
            _LOG.warning("Could not count the rows with column %s of %s: %s", difference.column, event.table, error)
            return None


def _recency(state: KnownTable) -> tuple[datetime, float]:
    """Return a value that is highest for the newest feed of a table, and of equally new ones for that checked last."""
    return state.shape.identity.created_at, -(state.age_seconds or 0.0)


def _pins(settings: PipelineSettings, states: Mapping[TableName, TableState]) -> dict[TableName, str | None]:
    """Return every table of a pipeline with the capture instance that it reads, None where it has not read any."""
    return {**dict.fromkeys(settings.sources), **pinned_instances(settings, states)}


def _rounds(pipelines: Iterable[Mapping[TableName, str | None]]) -> list[dict[TableName, str | None]]:
    """Return as few snapshots as possible that show every table with every capture instance that is read.

    One snapshot shows one instance per table.
    """
    rounds: list[dict[TableName, str | None]] = []
    for table, name in dict.fromkeys(pair for pins in pipelines for pair in pins.items()):
        free = next((each for each in rounds if table not in each), None)
        if free is None:
            rounds.append({table: name})
        else:
            free[table] = name
    return rounds


def held_verdicts(validities: Sequence[Validity], holds: Mapping[TableName, Hold]) -> tuple[Validity, ...]:
    """Return the verdicts, with ``held`` for the held tables."""
    return tuple(
        _held(validity, holds[validity.table]) if validity.table in holds else validity for validity in validities
    )


def all_held(pipeline: str, validities: Sequence[Validity]) -> TableHeldError | None:
    """Return the error for a pipeline whose tables are all held: such a run must not succeed."""
    if not validities or any(validity.verdict is not Verdict.HELD for validity in validities):
        return None
    return TableHeldError(pipeline, "every table is held. " + " | ".join(map(str, validities)))


def _held(validity: Validity, hold: Hold) -> Validity:
    cause, hint = describe_hold(hold.event.explained.difference, hold.event.event_id, hold.held_at)
    return replace(validity, verdict=Verdict.HELD, cause=cause, hint=hint)


def _shape(
    instance: CaptureInstance,
    table_snapshot: TableSnapshot,
    lost: tuple[str, ...],
    uncaptured: tuple[SourceColumn, ...],
) -> TableShape:
    table = stored(instance.table, lost)
    return TableShape(
        name=table.name,
        identity=instance.identity,
        captured=table.columns,
        lost=lost,
        uncaptured=uncaptured,
        key=table.key,
        max_column_id=table_snapshot.max_column_id,
    )


def _without_lost(table_snapshot: TableSnapshot, shape: TableShape | None) -> TableSnapshot:
    instance = table_snapshot.instance
    if instance is None or shape is None or instance.identity != shape.identity:
        return table_snapshot
    return replace(table_snapshot, instance=replace(instance, table=stored(instance.table, shape.lost)))
