"""The watch of a source for schema drift: compare tables with their recorded shapes, record events, raise alerts, hold.

The drift DAG calls ``DriftWatch.watch``, which reads the details of every table once an hour. Each run calls
``examine`` before it plans; it reads details only where something differs. So a table whose new shape would not fit its
target never gets into a window, however seldom the DAG runs. Each event is recorded once (see ``ledger.drift``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from floodmark.core.alerts.left_out import COLUMNS_LEFT_OUT, columns_left_out, columns_left_out_key
from floodmark.core.drift.messages import describe, describe_hold
from floodmark.core.drift.risk import RowsAtRisk
from floodmark.core.drift.shapes import TableShape, is_as_known, stored
from floodmark.core.drift.table_names import is_named, known_as
from floodmark.core.drift.words import CDC_DRIFT_WORDS, DriftWords
from floodmark.core.errors import FloodmarkError, TableHeldError
from floodmark.core.policies import DriftClass
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.snapshot import CaptureInstance, SourceSnapshot, TableSnapshot, Validity, Verdict
from floodmark.core.source.state import TableState
from floodmark.core.source.words import SourceWords
from floodmark.core.window.planning import pinned_instances
from floodmark.sync.alerts import Alerts
from floodmark.sync.drift.events import Findings, alert_key, build_drift_alert, is_ignored, proposed_with
from floodmark.sync.ports.drift import DriftEvent, DriftFacts, DriftLedger, DriftSource, Hold, KnownTable, newest
from floodmark.sync.ports.drift_watch import Examined
from floodmark.sync.ports.source import Source
from floodmark.sync.window.origin import require_origin

_LOG = logging.getLogger(__name__)
DETAILS_SECONDS = 3600.0
"""The age from which the details of a table are read that is as it was known."""


@dataclass(frozen=True, slots=True)
class TableDiff:
    """A table and its recorded shape."""

    table_snapshot: TableSnapshot
    table: TableName
    """See ``core.drift.table_names``."""
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
        ledger: DriftLedger,
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
