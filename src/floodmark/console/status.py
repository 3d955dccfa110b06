"""How a pipeline stands, for people and for programs: what the ledger says, and what the source says if it is asked.

Without the source the verdict is that of the last run, and lag and headroom are unknown. With it, everything is of now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from floodmark.console.under_way import StopStatus, SwitchStatus, stop_status, switch_status
from floodmark.core.capture import SourceSnapshot, Validity, Verdict
from floodmark.core.capture_job import PlannedStop
from floodmark.core.change_table import sizes_of
from floodmark.core.drift import Difference, DriftClass, DriftPolicy
from floodmark.core.drift_words import describe, describe_hold
from floodmark.core.gap import GAPS, OnGap
from floodmark.core.lane import MAIN_LANE, is_load_lane
from floodmark.core.lsn import Lsn
from floodmark.core.measures import TableMark, lag_of
from floodmark.core.planning import classify_tables
from floodmark.core.progress import SourceProgress, Standing, headroom_seconds, judge
from floodmark.core.run_alerts import RUN_FAILED
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.state import TableState
from floodmark.ledger.drift_rows import event_of
from floodmark.ledger.switches import switch_of
from floodmark.postgres import Reachable, open_transaction
from floodmark.sqlfiles import read_sql
from floodmark.sync.drift_ports import DriftEvent
from floodmark.sync.ports import Ledger
from floodmark.sync.repair import tell_load

NEVER_RUN = "never_run"
_REPAIR = (
    "The next run begins to load the table anew by itself (on_gap: repair). See that the DAGs cdc_%s and cdc_load_%s "
    "are not paused, and find out what led to it."
)
_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LastWindow:
    """What the last published window did to a table, in rows."""

    window_id: int
    read_rows: int
    inserted_rows: int
    updated_rows: int
    deleted_rows: int
    quarantined_rows: int


@dataclass(frozen=True, slots=True)
class ChangeTableStatus:
    """rows, size_bytes: None where the login may not see them."""

    instance: str
    rows: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """state: never_run, first_load, settling (loaded, and consistent with the others after a window or two) or
    consistent. watermark_at: its commit time, local time of the source. windows and rows: of all published windows.

    Of the source, None or empty unless it was asked: lag_seconds, transactions_behind (of the whole database),
    headroom_seconds until cleanup passes the watermark (None also where the login may not see the retention),
    change_tables: of its capture instances. standing: fine, attention or incident, with the reason. drift: what nobody
    has decided about yet, in words, with the numbers of the events. switch: the approved one that is under way.
    """

    source: str
    target: str
    watermark: str | None = None
    watermark_at: datetime | None = None
    consistent: bool = False
    verdict: str = NEVER_RUN
    cause: str = ""
    windows: int = 0
    read_rows: int = 0
    inserted_rows: int = 0
    updated_rows: int = 0
    deleted_rows: int = 0
    quarantined_rows: int = 0
    advanced_at: datetime | None = None
    lag_seconds: float | None = None
    state: str = NEVER_RUN
    hint: str = ""
    verdict_since: datetime | None = None
    verdict_seen_at: datetime | None = None
    transactions_behind: int | None = None
    headroom_seconds: float | None = None
    last_window: LastWindow | None = None
    standing: str = Standing.FINE.name.lower()
    reason: str = ""
    load_percent: int | None = None
    load_rows: int | None = None
    drift: tuple[str, ...] = ()
    change_tables: tuple[ChangeTableStatus, ...] = ()
    switch: SwitchStatus | None = None


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """An alert about the pipeline or its source that is not over."""

    kind: str
    subject: str
    table: str | None
    what: str
    do: str
    raised_at: datetime
    times: int


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """unfinished: id and state of the window that the next run finishes. standing: the worst of its tables, at least
    attention while an alert is open, and incident while its runs fail, whatever they fail of. planned_stop: of the
    capture job of its source, None where there is none now, or it was ended early."""

    pipeline: str
    unfinished_window_id: int | None
    unfinished_state: str | None
    tables: tuple[TableStatus, ...]
    alerts: tuple[AlertStatus, ...] = ()
    standing: str = Standing.FINE.name.lower()
    planned_stop: StopStatus | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What the source said."""

    snapshot: SourceSnapshot
    progress: SourceProgress


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pipeline's configuration says that its settings do not. source: its name there. planned_stop: of its
    capture job, the one that is on at ``now`` or is just over."""

    source: str
    lag_seconds: float
    now: datetime
    planned_stop: PlannedStop | None = None


class StatusReader:
    """Of one pipeline. Reads the ledger as it is, and makes none where no run has made one yet."""

    def __init__(self, settings: PipelineSettings, limits: Limits, ledger: Ledger, warehouse: Reachable) -> None:
        self._settings = settings
        self._limits = limits
        self._ledger = ledger
        if _is_made(warehouse):
            # Of an earlier version of Floodmark, maybe, which no run has brought up to this one yet.
            ledger.ensure_schema()
        with open_transaction(warehouse, settings.name) as session:
            self._rows = _read_rows(session, "window_tables", "read_status", pipeline=settings.name)
            self._alerts = _read_rows(session, "alerts", "list_open_alerts")
            holds = _read_rows(session, "drift_holds", "list_drift_holds", pipeline=settings.name)
            events = _read_rows(session, "drift_events", "list_drift_events", source=limits.source, event_id=None)
            switches = _read_rows(session, "instance_switches", "list_switches", source=limits.source, switch_id=None)
        self._switches = [switch_of(row) for row in switches]
        self._drift: dict[tuple[str, str], list[str]] = {}
        for event in map(event_of, events):
            if event.approved_at is None and not event.is_rejected and _is_told(event, settings.name):
                words = f"{describe(event.explained.difference)} (event {event.event_id})"
                self._drift.setdefault(event.table.folded, []).append(words)
        self._holds = {TableName(row["source_schema"], row["source_name"]): row for row in reversed(holds)}
        self.states: Mapping[TableName, TableState] = ledger.read_tables(settings.name) if self._rows else {}
        unfinished = ledger.list_unfinished(settings.name) if self._rows else ()
        self._main = next((window for window in unfinished if window.plan.lane == MAIN_LANE), None)
        self._loads = {window.plan.tables[0].source: window for window in unfinished if is_load_lane(window.plan.lane)}
        self._progress = {
            table: progress
            for window in (*self._loads.values(), *([self._main] if self._main else []))
            for table, progress in ledger.read_load_progress(window.plan.window_id).items()
        }

    @property
    def watermarks(self) -> list[Lsn]:
        return [state.watermark for state in self.states.values() if state.watermark]

    def read_status(self, look: Look | None = None) -> PipelineStatus:
        """look: at the source, with the tables' pinned instances and ``watermarks``."""
        validities = self._classify(look) if look else ()
        by_table = {validity.table: validity for validity in validities} | self._held() | self._loading()
        rows = {TableName(row["source_schema"], row["source_name"]): row for row in self._rows}
        tables = [
            self._table_status(table, rows.get(table.source), by_table.get(table.source), look)
            for table in self._settings.tables
        ]
        alerts = tuple(_alert_status(row) for row in self._alerts if self._concerns(row))
        standings = [Standing[table.standing.upper()] for table in tables]
        return PipelineStatus(
            self._settings.name,
            self._main.plan.window_id if self._main else None,
            self._main.state.value if self._main else None,
            tuple(tables),
            alerts,
            max([*standings, *map(_standing_of, alerts), Standing.FINE]).name.lower(),
            self._stop(look),
        )

    def _stop(self, look: Look | None) -> StopStatus | None:
        """A source without an Agent cannot be stopped, whatever is planned."""
        if look and not look.snapshot.has_agent:
            return None
        job_runs = look.snapshot.capture_running if look else None
        return stop_status(self._limits.planned_stop, self._limits.now, job_runs=job_runs)

    def _classify(self, look: Look) -> tuple[Validity, ...]:
        return classify_tables(self._settings, look.snapshot, self.states, self._limits.planned_stop)

    def _held(self) -> dict[TableName, Validity]:
        """A hold counts from the moment it is made, and until it is ended, whatever the last run saw."""
        held = {}
        for table, row in self._holds.items():
            difference = Difference(
                DriftClass(row["kind"]), row["column_name"], row["before"], row["after"], row["is_captured"]
            )  # fmt: skip
            held[table] = Validity(
                table, Verdict.HELD, *describe_hold(difference, row["event_id"], row["held_at"].astimezone(UTC))
            )
        return held

    def _loading(self) -> dict[TableName, Validity]:
        return {
            table: tell_load(Validity(table, Verdict.REPAIRING, ""), window, self._progress.get(table))
            for table, window in self._loads.items()
        }

    def _concerns(self, alert: _Row) -> bool:
        """An alert about a table of the source that only other pipelines read is theirs."""
        if alert["subject"] not in (self._settings.name, self._limits.source):
            return False
        table = TableName(alert["source_schema"], alert["source_name"]) if alert["source_name"] is not None else None
        return table is None or table.folded in {each.folded for each in self._settings.sources}

    def _table_status(
        self, table: TableSettings, row: _Row | None, validity: Validity | None, look: Look | None
    ) -> TableStatus:  # fmt: skip
        found = row or {}
        watermark = Lsn(bytes(found["watermark"])) if found.get("watermark") else None
        watermark_at: datetime | None = found.get("watermark_at")
        known = found.get("verdict")
        verdict = validity.verdict if validity else Verdict(known) if known else None
        lag = headroom = retention = None
        progress, state = self._progress.get(table.source), self.states.get(table.source)
        if look and verdict:
            retention = look.progress.retention_minutes
            lag = lag_of(TableMark(table.source, watermark, watermark_at, verdict), look.snapshot)
            headroom = headroom_seconds(watermark_at, look.snapshot.taken_at, retention, verdict)
        is_to_repair = verdict in GAPS and table.on_gap is OnGap.REPAIR
        standing, reason = judge(
            verdict, lag, headroom, lag_limit_seconds=self._limits.lag_seconds, retention_minutes=retention,
            mends_itself=is_to_repair,
        )  # fmt: skip
        return TableStatus(
            source=str(table.source),
            target=str(table.target),
            watermark=str(watermark) if watermark else None,
            watermark_at=watermark_at,
            verdict=verdict.value if verdict else NEVER_RUN,
            cause=validity.cause if validity else found.get("cause") or "",
            hint=_REPAIR % (self._settings.name, self._settings.name)
            if is_to_repair
            else validity.hint
            if validity
            else found.get("hint") or "",
            lag_seconds=lag,
            state=_state(row, watermark),
            transactions_behind=look.progress.transactions_behind.get(watermark) if look and watermark else None,
            headroom_seconds=headroom,
            last_window=_last_window(found),
            standing=standing.name.lower(),
            reason=reason,
            load_percent=progress.percent if progress else None,
            load_rows=progress.rows if progress else None,
            drift=tuple(self._drift.get(table.source.folded, ())),
            change_tables=_change_tables(table.source, look),
            switch=switch_status(self._switches, self._settings.name, table.source, state.identity if state else None),
            **{name: found[name] for name in _COPIED if row},
        )


_COPIED = (
    "consistent", "windows", "read_rows", "inserted_rows", "updated_rows", "deleted_rows", "quarantined_rows",
    "advanced_at", "verdict_since", "verdict_seen_at",
)  # fmt: skip


def _state(row: _Row | None, watermark: Lsn | None) -> str:
    if row is None:
        return NEVER_RUN
    if watermark is None:
        return "first_load"
    return "consistent" if row["consistent"] else "settling"


def _change_tables(table: TableName, look: Look | None) -> tuple[ChangeTableStatus, ...]:
    sizes = sizes_of(table, look.progress.sizes) if look else ()
    return tuple(ChangeTableStatus(size.instance, size.rows, size.size_bytes) for size in sizes)


def _last_window(row: _Row) -> LastWindow | None:
    if row.get("last_window_id") is None:
        return None
    names = ("window_id", "read_rows", "inserted_rows", "updated_rows", "deleted_rows", "quarantined_rows")
    return LastWindow(**{name: row[f"last_{name}"] for name in names})


def _is_told(event: DriftEvent, pipeline: str) -> bool:
    """Whether the pipeline has a policy for it that wants somebody to know."""
    return event.policies.get(pipeline, DriftPolicy.IGNORE) is not DriftPolicy.IGNORE


def _standing_of(alert: AlertStatus) -> Standing:
    return Standing.INCIDENT if alert.kind == RUN_FAILED else Standing.ATTENTION


def _alert_status(row: _Row) -> AlertStatus:
    table = f"{row['source_schema']}.{row['source_name']}" if row["source_name"] is not None else None
    return AlertStatus(
        row["kind"], row["subject"], table, row["what"], row["advice"], row["raised_at"], row["times"]
    )  # fmt: skip


def _is_made(warehouse: Reachable) -> bool:
    with open_transaction(warehouse) as session:
        made = session.execute("SELECT to_regclass('floodmark.window_tables') IS NOT NULL").fetchone()
    return made is not None and bool(made[0])


def _read_rows(session: psycopg.Connection, table: str, statement: str, **parameters: Any) -> list[_Row]:
    """None at all where no run has made the ledger's table yet."""
    made = session.execute("SELECT to_regclass(%s) IS NOT NULL", [f"floodmark.{table}"]).fetchone()
    if made is None or not made[0]:
        return []
    return session.cursor(row_factory=dict_row).execute(read_sql("warehouse", statement), parameters).fetchall()
