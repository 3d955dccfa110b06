"""The status of a pipeline from the ledger and the source, and the comparison of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.core.alerts import TABLE_NOT_TAKEN, standing_of
from floodmark.core.capture import PlannedStop
from floodmark.core.drift import describe, describe_hold
from floodmark.core.plan import MAIN_LANE, is_load_lane
from floodmark.core.planning import classify_tables
from floodmark.core.position import Position
from floodmark.core.progress import (
    SourceProgress,
    Standing,
    headroom_seconds,
    judge,
)
from floodmark.core.schema import TableName
from floodmark.core.settings import DriftPolicy, OnGap, PipelineSettings, TableSettings
from floodmark.core.snapshot import SourceSnapshot, TableState, Validity, Verdict
from floodmark.core.status import (
    NEVER_RUN,
    AlertStatus,
    ChangeTableStatus,
    PipelineStatus,
    StopStatus,
    TableMark,
    TableStatus,
    lag_of,
    stop_status,
    switch_status,
)
from floodmark.core.upkeep import sizes_of
from floodmark.core.verdicts import GAPS
from floodmark.sync.alerts import OpenAlert
from floodmark.sync.records import DriftEvent, RecordedTable
from floodmark.sync.repair import describe_load

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger
    from floodmark.postgres.ledger.status import PostgresStatusLedger


# --------------------------------------------------------------------------------------------------------------------
# The status of a pipeline, from the ledger and, on request, from the source.
#
# Without the source, the verdict is that of the last run, and lag and headroom are unknown. With it, all values are
# current.


_REPAIR = (
    "The next run starts the reload of the table (on_gap: repair). Make sure that the DAGs cdc_%s and cdc_load_%s are "
    "not paused, and find the cause of the gap."
)


@dataclass(frozen=True, slots=True)
class LiveSource:
    """The answers of the source."""

    snapshot: SourceSnapshot
    progress: SourceProgress


@dataclass(frozen=True, slots=True)
class Limits:
    """The parts of a pipeline's configuration that its settings do not have."""

    source: str
    """The name of the source in the configuration."""
    lag_seconds: float
    now: datetime
    planned_stop: PlannedStop | None = None
    """The planned stop of the capture job that is current at ``now`` or has just ended."""


class StatusReader:
    """A reader of the status of one pipeline. It does not create a ledger."""

    def __init__(
        self, settings: PipelineSettings, limits: Limits, ledger: PostgresLedger, status_ledger: PostgresStatusLedger
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._record = status_ledger.read_status(settings.name, limits.source)
        self._drift = _undecided(self._record.events, settings.name)
        is_made = bool(self._record.tables)
        self.states: Mapping[TableName, TableState] = ledger.read_tables(settings.name) if is_made else {}
        unfinished = ledger.list_unfinished(settings.name) if is_made else ()
        self.marks = ledger.list_marks(settings.name) if is_made else {}
        self._main = next((window for window in unfinished if window.plan.lane == MAIN_LANE), None)
        self._loads = {window.plan.tables[0].source: window for window in unfinished if is_load_lane(window.plan.lane)}
        self._progress = {
            table: progress
            for window in (*self._loads.values(), *([self._main] if self._main else []))
            for table, progress in ledger.read_load_progress(window.plan.window_id).items()
        }

    @property
    def unfinished_window_id(self) -> int | None:
        """The window of the main lane that the next run finishes first."""
        return self._main.plan.window_id if self._main else None

    @property
    def watermarks(self) -> list[Position]:
        """The watermarks of the pipeline's tables."""
        return [state.watermark for state in self.states.values() if state.watermark]

    def read_status(self, live: LiveSource | None = None) -> PipelineStatus:
        """Return the status. live: read with the tables' pinned instances and ``watermarks``."""
        validities = self._classify(live) if live else ()
        rows = self._record.tables
        current = {validity.table: validity for validity in validities} if live else _read_since(rows)
        by_table = current | self._recorded()
        tables = [
            self._table_status(table, rows.get(table.source), by_table.get(table.source), live)
            for table in self._settings.tables
        ]
        alerts = tuple(_alert_status(alert) for alert in self._record.alerts if self._concerns(alert))
        standings = [Standing[table.standing.upper()] for table in tables]
        return PipelineStatus(
            self._settings.name,
            self.unfinished_window_id,
            self._main.state.value if self._main else None,
            tuple(tables),
            alerts,
            max([*standings, *(standing_of(alert.kind) for alert in alerts), Standing.FINE]).name.lower(),
            self._stop(live),
        )

    def _stop(self, live: LiveSource | None) -> StopStatus | None:
        """Return the status of the planned stop; None for a source without an Agent, which cannot be stopped."""
        if live and not live.snapshot.has_agent:
            return None
        job_runs = live.snapshot.capture_running if live else None
        return stop_status(self._limits.planned_stop, self._limits.now, job_runs=job_runs)

    def _classify(self, live: LiveSource) -> tuple[Validity, ...]:
        return classify_tables(self._settings, live.snapshot, self.states, self._limits.planned_stop)

    def with_records(self, validities: Iterable[Validity]) -> tuple[Validity, ...]:
        """Return verdicts, with those of tables that are held or loaded on their own lane."""
        recorded = self._recorded()
        return tuple(recorded.get(validity.table, validity) for validity in validities)

    def _recorded(self) -> dict[TableName, Validity]:
        return self._held() | self._loading()

    def _held(self) -> dict[TableName, Validity]:
        """Return the verdicts of held tables. A hold counts from its start to its end, whatever the last run saw."""
        return {
            table: Validity(table, Verdict.HELD, *describe_hold(hold.difference, hold.event_id, hold.held_at))
            for table, hold in self._record.holds.items()
        }

    def _loading(self) -> dict[TableName, Validity]:
        return {
            table: describe_load(Validity(table, Verdict.REPAIRING, ""), window, self._progress.get(table))
            for table, window in self._loads.items()
        }

    def _concerns(self, opened: OpenAlert) -> bool:
        """Return whether an alert concerns the pipeline. One about a table that only other pipelines read does not."""
        if opened.alert.subject not in (self._settings.name, self._limits.source):
            return False
        table = opened.alert.table
        if opened.alert.kind == TABLE_NOT_TAKEN:  # its table is none of the pipeline's yet
            return True
        return table is None or table.folded in {each.folded for each in self._settings.sources}

    def _table_status(
        self,
        table: TableSettings,
        recorded: RecordedTable | None,
        validity: Validity | None,
        live: LiveSource | None,
    ) -> TableStatus:
        watermark = recorded.watermark if recorded else None
        watermark_at = recorded.watermark_at if recorded else None
        verdict = validity.verdict if validity else recorded.verdict if recorded else None
        lag = headroom = retention = unread = None
        progress, state = self._progress.get(table.source), self.states.get(table.source)
        if live and verdict:
            retention = live.progress.retention_minutes
            since = live.progress.unread_since(watermark, watermark_at)
            unread = live.progress.unread.get(table.source)
            lag = (
                unread.seconds if unread else lag_of(TableMark(table.source, watermark, since, verdict), live.snapshot)
            )
            headroom = headroom_seconds(since, live.snapshot.taken_at, retention, verdict)
        waiting = self._record.waiting.get(table.source, 0)
        is_to_repair = verdict in GAPS and table.on_gap is OnGap.REPAIR
        standing, reason = judge(
            verdict,
            lag,
            headroom,
            lag_limit_seconds=self._limits.lag_seconds,
            retention_minutes=retention,
            repairs_itself=is_to_repair,
            waiting_rows=waiting,
        )
        return TableStatus(
            source=str(table.source),
            target=str(table.target),
            watermark=str(watermark) if watermark else None,
            watermark_at=watermark_at,
            verdict=verdict.value if verdict else NEVER_RUN,
            cause=validity.cause if validity else recorded.cause if recorded else "",
            hint=self._hint(recorded, validity, is_to_repair=is_to_repair),
            lag_seconds=lag,
            least_lag_seconds=None if live else self._least_lag(recorded, verdict),
            state=_state(recorded),
            transactions_behind=live.progress.transactions_behind.get(watermark) if live and watermark else None,
            unread_messages=unread.messages if unread else None,
            headroom_seconds=headroom,
            headroom_transactions=_headroom_transactions(watermark, validity) if live else None,
            last_window=recorded.last_window if recorded else None,
            standing=standing.name.lower(),
            reason=reason,
            load_percent=progress.percent if progress else None,
            load_rows=progress.rows if progress else None,
            drift=tuple(self._drift.get(table.source.folded, ())),
            waiting_rows=waiting,
            change_tables=_change_tables(table.source, live),
            switch=switch_status(
                self._record.switches, self._settings.name, table.source, state.identity if state else None
            ),
            **{name: getattr(recorded, name) for name in _COPIED if recorded},
        )

    def _least_lag(self, recorded: RecordedTable | None, verdict: Verdict | None) -> float | None:
        """Return the time since a run last found that the target has all that the source had, by the ledger alone."""
        if recorded is None or recorded.watermark is None:
            return None
        at = recorded.verdict_seen_at if verdict is Verdict.CAUGHT_UP else recorded.advanced_at
        return max((self._limits.now - at).total_seconds(), 0.0) if at else None

    def _hint(self, recorded: RecordedTable | None, validity: Validity | None, *, is_to_repair: bool) -> str:
        if is_to_repair:
            return _REPAIR % (self._settings.name, self._settings.name)
        return validity.hint if validity else recorded.hint if recorded else ""


_COPIED = (
    "consistent",
    "windows",
    "read_rows",
    "inserted_rows",
    "updated_rows",
    "deleted_rows",
    "quarantined_rows",
    "advanced_at",
    "verdict_since",
    "verdict_seen_at",
)
"""The fields that a status has in common with ``RecordedTable``."""


def _read_since(tables: Mapping[TableName, RecordedTable]) -> dict[TableName, Validity]:
    """Return the verdicts of tables whose recorded verdict a window has answered: the run gave it before it read."""
    return {
        table: Validity(
            table,
            Verdict.CAUGHT_UP,
            f"the last run read all that the source had, up to {each.watermark}.",
            watermark=each.watermark,
        )
        for table, each in tables.items()
        if each.is_read_since
    }


def _headroom_transactions(watermark: Position | None, validity: Validity | None) -> int | None:
    """Return how many transactions lie from the lowest position that can be read to the watermark."""
    if watermark is None or validity is None or validity.oldest is None:
        return None
    left = watermark.next().count_above(validity.oldest)
    return None if left is None else max(left, 0)


def _state(recorded: RecordedTable | None) -> str:
    if recorded is None:
        return NEVER_RUN
    if recorded.watermark is None:
        return "first_load"
    return "consistent" if recorded.consistent else "settling"


def _undecided(events: Iterable[DriftEvent], pipeline: str) -> dict[tuple[str, str], list[str]]:
    """Return descriptions of the undecided events that a pipeline reports, by the folded name of the table."""
    found: dict[tuple[str, str], list[str]] = {}
    for event in events:
        is_reported = event.policies.get(pipeline, DriftPolicy.IGNORE) is not DriftPolicy.IGNORE
        if event.approved_at is None and not event.is_rejected and is_reported:
            description = f"{describe(event.explained.difference)} (event {event.event_id})"
            found.setdefault(event.table.folded, []).append(description)
    return found


def _change_tables(table: TableName, live: LiveSource | None) -> tuple[ChangeTableStatus, ...]:
    sizes = sizes_of(table, live.progress.sizes) if live else ()
    return tuple(ChangeTableStatus(size.instance, size.rows, size.size_bytes) for size in sizes)


def _alert_status(opened: OpenAlert) -> AlertStatus:
    alert = opened.alert
    table = str(alert.table) if alert.table is not None else None
    about = (alert.event_key, alert.kind, alert.subject)
    return AlertStatus(*about, table, alert.what, alert.do, opened.raised_at, opened.times)
