"""The decision on what a run does next, from the snapshot of the source and the state in the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from floodmark.core.errors import ConfigError, FloodmarkError, NoKeyError, TableNotPlannableError
from floodmark.core.interval import Interval
from floodmark.core.policies import NetSource, OnGap, SecurityFiltered
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.source.capture_status import PlannedStop
from floodmark.core.source.feed import Feed, InstanceIdentity
from floodmark.core.source.snapshot import (
    CaptureInstance,
    SourceSnapshot,
    TableSnapshot,
    Validity,
    Verdict,
    join_verdicts,
)
from floodmark.core.source.state import TableState
from floodmark.core.source.verdicts import INCIDENTS, LEFT_OUT, classify, incident, is_quiet, is_unproven
from floodmark.core.types import warehouse_type
from floodmark.core.window.measures import NO_MEASURES, PlanMeasures, measure_plan
from floodmark.core.window.net_source import check_net
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.core.window.readers_view import check_readers_view

PLANNED = (Verdict.READY, Verdict.NOT_STARTED)


@dataclass(frozen=True, slots=True)
class Fail:
    """The run ends with this error; nothing was planned."""

    error: FloodmarkError


@dataclass(frozen=True, slots=True)
class Skip:
    """There is nothing to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class AdvanceQuiet:
    """The log moved on without a change of these tables: only their watermarks move."""

    to_lsn: Position
    to_lsn_at: datetime | None
    watermarks: Mapping[TableName, Position]
    """The current watermarks."""
    instances: Mapping[TableName, InstanceIdentity]
    """The instances that were checked for changes."""


@dataclass(frozen=True, slots=True)
class Open:
    """A window must be opened."""

    to_lsn: Position
    to_lsn_at: datetime | None
    tables: tuple[TablePlan, ...]
    measures: PlanMeasures = NO_MEASURES


Decision = Fail | Skip | AdvanceQuiet | Open


def pinned_instances(settings: PipelineSettings, states: Mapping[TableName, TableState]) -> dict[TableName, str]:
    """Return the capture instances to ask for by name: the configured one, else the one that was read before."""
    pinned = {}
    for table in settings.tables:
        state = states.get(table.source)
        known = state.identity.name if state and state.identity else None
        if name := table.capture_instance or known:
            pinned[table.source] = name
    return pinned


def known_positions(states: Mapping[TableName, TableState]) -> list[Position]:
    """Return the positions to ask the source about: whether it still has them, and what has changed after the lowest.

    These are the watermarks, and the ends of the reads of loads that are not consistent yet.
    """
    watermarks = {state.watermark for state in states.values() if state.watermark}
    reads = {state.read_lsn for state in states.values() if state.read_lsn and not state.consistent}
    return sorted(watermarks | reads)


def classify_tables(
    settings: PipelineSettings,
    snapshot: SourceSnapshot,
    states: Mapping[TableName, TableState],
    planned_stop: PlannedStop | None = None,
) -> tuple[Validity, ...]:
    """Return the verdict on each table of the snapshot.

    planned_stop: the stop of the capture job that is in effect.
    """
    return tuple(
        classify(
            table_snapshot,
            snapshot,
            states.get(table_snapshot.table),
            settings.lag_limit_seconds,
            planned_stop,
            pipeline=settings.name,
            source_name=settings.source_name,
        )
        for table_snapshot in snapshot.tables
    )


def check_plans(
    settings: PipelineSettings,
    snapshot: SourceSnapshot,
    states: Mapping[TableName, TableState],
    validities: Sequence[Validity],
) -> tuple[Validity, ...]:
    """Return the verdicts, with ``not_plannable`` for the tables that can never be loaded as configured."""
    tables = {table.source: table for table in settings.tables}
    table_snapshots = {table_snapshot.table: table_snapshot for table_snapshot in snapshot.tables}

    def checked(validity: Validity) -> Validity:
        name = validity.table
        if validity.verdict in PLANNED:
            try:
                plan_table(tables[name], table_snapshots[name], snapshot, states.get(name))
            except (ConfigError, NoKeyError) as error:
                return not_plannable(validity, error)
        return validity

    return tuple(map(checked, validities))


def not_plannable(validity: Validity, error: FloodmarkError) -> Validity:
    """Return the verdict on a table whose plan was refused with an error."""
    return replace(validity, verdict=Verdict.NOT_PLANNABLE, cause=error.message, hint=error.hint)


def decide(
    settings: PipelineSettings,
    snapshot: SourceSnapshot,
    states: Mapping[TableName, TableState],
    validities: tuple[Validity, ...],
) -> Decision:
    """Return what the run does.

    Tables whose verdict is in ``LEFT_OUT`` are left out, and must be reported when the others have been published.
    Raises ConfigError or NoKeyError for a table that ``check_plans`` would refuse.
    """
    incidents = incident(settings.name, validities)
    if incidents and any(each.verdict in INCIDENTS and each.verdict not in LEFT_OUT for each in validities):
        return Fail(incidents)
    verdicts = {validity.table: validity.verdict for validity in validities}
    table_snapshots = {table_snapshot.table: table_snapshot for table_snapshot in snapshot.tables}
    chosen = [
        plan_table(table, table_snapshots[table.source], snapshot, states.get(table.source))
        for table in settings.tables
        if verdicts[table.source] in PLANNED
    ]
    if not chosen and incidents:
        return Fail(incidents)
    if not chosen or not isinstance(snapshot.max_lsn, Position):
        return Skip(_reason(validities))
    if all(table.quiet for table in chosen):
        watermarks = {table.source: table.watermark for table in chosen if table.watermark}
        instances = {table.source: table.feed.identity for table in chosen}
        return AdvanceQuiet(snapshot.max_lsn, snapshot.max_lsn_at, watermarks, instances)
    return Open(snapshot.max_lsn, snapshot.max_lsn_at, tuple(chosen), measure_plan(snapshot, states))


def plan_table(
    settings: TableSettings, table_snapshot: TableSnapshot, snapshot: SourceSnapshot, state: TableState | None
) -> TablePlan:
    """Return the plan of one table of the next window; its verdict must be READY or NOT_STARTED."""
    assert table_snapshot.instance is not None and isinstance(snapshot.max_lsn, Position)  # noqa: S101  (ensured by classify)
    watermark = state.watermark if state else None
    # The login may not see every policy, so the configuration counts, and not what the source shows.
    accepts_filters = settings.security_filtered is SecurityFiltered.ACCEPT
    check_readers_view(table_snapshot, accepts_filters=accepts_filters)
    instance = with_key(settings, table_snapshot.instance)
    check_net(settings, instance, table_snapshot.instance.table.key)
    for column in instance.table.stored_columns:
        warehouse_type(instance.table, column, settings.temporal)
    unproven = is_unproven(table_snapshot, state)
    after = None if unproven else watermark or (instance.start_lsn if instance.member_column else None)
    if fault := table_snapshot.plan_fault or (None if after else table_snapshot.load_fault):
        raise TableNotPlannableError(str(settings.source), fault.cause, fault.hint)
    return TablePlan(
        source=settings.source,
        target=settings.target,
        kind=LoadKind.CHANGES if after else LoadKind.FIRST_LOAD,
        feed=instance,
        interval=Interval(after, snapshot.max_lsn) if after else None,
        watermark=watermark,
        deletes=settings.deletes,
        net=NetSource.SERVER if instance.delivers_net else _net_source(settings, state),
        temporal=settings.temporal,
        rules=settings.rules,
        partitions=settings.partitions,
        lob_batch_bytes=settings.lob_batch_bytes,
        first_load_chunk_rows=settings.first_load_chunk_rows,
        first_load_parallel_reads=settings.first_load_parallel_reads,
        max_reads=settings.max_reads,
        unstorable=settings.unstorable,
        # Rows are in the target also of a first load that was merged and then refused by a check.
        is_reload=unproven or (after is None and state is not None and state.read_lsn is not None),
        keeps_unread=accepts_filters,
        quiet=watermark is not None and not unproven and is_quiet(table_snapshot, watermark),
        reloads_members=settings.on_gap is OnGap.REPAIR,
        ends=table_snapshot.ends,
        rows_at=table_snapshot.rows_at,
    )


def _net_source(settings: TableSettings, state: TableState | None) -> NetSource:
    """Return who computes net changes.

    The server's net changes omit a row that was inserted and deleted in one window. A load that read it in between has
    brought it to the target; so until the table is consistent, Spark computes them, which keeps deletes.
    """
    return settings.net if state is not None and state.consistent else NetSource.SPARK


def plan_reload(
    settings: TableSettings,
    table_snapshot: TableSnapshot,
    snapshot: SourceSnapshot,
    state: TableState | None,
    where: str = "",
) -> TablePlan | Validity:
    """Return the plan to reload the whole table, or the rows for which ``where`` is true, whatever the watermark is.

    Returns a verdict where the table cannot be loaded (yet).
    """
    # A load of the whole table needs no changes after the marks.
    table_snapshot = replace(table_snapshot, fault=None)
    validity = classify(table_snapshot, snapshot, None)
    if validity.verdict is not Verdict.NOT_STARTED:
        return validity
    plan = plan_table(settings, table_snapshot, snapshot, None)
    return replace(
        plan,
        kind=LoadKind.FIRST_LOAD,
        interval=None,
        watermark=state.watermark if state else None,
        is_reload=not where,
        where=where,
        # A member that is away now has not lost its rows.
        keeps_unread=plan.keeps_unread or bool(plan.feed.member_column),
    )


def has_changed(table: TablePlan, snapshot: SourceSnapshot, settings: PipelineSettings) -> bool:
    """Return whether a table that is read itself has changed since it was planned: other columns, or another key.

    The planned statement would fail, or return values of another type. Change tables keep their columns; net changes
    that the source delivers have those of the table itself.
    """
    if table.kind is not LoadKind.FIRST_LOAD and not table.feed.delivers_net:
        return False
    table_snapshots = {table_snapshot.table: table_snapshot.instance for table_snapshot in snapshot.tables}
    instance = table_snapshots.get(table.source)
    if instance is None or instance.identity != table.feed.identity:
        return False
    declared = next((each for each in settings.tables if each.source == table.source and each.key), None)
    if declared is not None and with_key(declared, instance).table.key != table.feed.table.key:
        return True
    return _typed(instance) != _typed(table.feed)


def _typed(instance: Feed) -> list[tuple[str, str]]:
    return [(column.name, column.declared_type) for column in instance.table.columns]


def with_key(settings: TableSettings, instance: CaptureInstance) -> CaptureInstance:
    """Return the instance with the declared key instead of the server's, if one is declared."""
    spelling = {column.name.casefold(): column for column in instance.table.columns}
    key = []
    for name in settings.key or instance.table.key:
        column = spelling.get(name.casefold())
        if column is None or column.is_computed or column.is_lob:
            kind = "not captured" if column is None else "computed" if column.is_computed else column.declared_type
            raise NoKeyError(
                str(settings.source),
                f"key column {name} is {kind}, so rows cannot be merged by it.",
                "Declare another key (key: [..] in pipelines.yaml), or capture the column.",
            )
        key.append(column.name)
    if not key:
        raise NoKeyError(
            str(settings.source),
            "the table has neither a primary key nor a declared key, so its rows cannot be merged.",
            "Declare one: key: [..] in pipelines.yaml, of columns that identify a row.",
        )
    return replace(instance, table=replace(instance.table, key=tuple(key)))


def _reason(validities: tuple[Validity, ...]) -> str:
    waiting = [validity for validity in validities if validity.verdict is not Verdict.CAUGHT_UP]
    if waiting:
        return join_verdicts(waiting)
    newest = next((str(validity.max_lsn) for validity in validities), "unknown")
    return f"every table is caught up with the source ({newest})."
