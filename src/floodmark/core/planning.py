"""The decision on what a run does next, and the result that its load reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.core import errors
from floodmark.core.capture import PlannedStop, bracket_table
from floodmark.core.columns import list_filled, list_filtering, select_columns
from floodmark.core.definition import (
    has_other_filter,
    is_renamed,
    list_renewed,
    name_columns,
    refuse_other_definition,
    with_columns,
)
from floodmark.core.errors import (
    ConfigError,
    DefinitionChangedError,
    FloodmarkBugError,
    FloodmarkError,
    NoKeyError,
    SourcePermissionError,
    TableNotPlannableError,
)
from floodmark.core.naming import why_no_versions
from floodmark.core.net import check_net, why_no_style_of
from floodmark.core.plan import LoadKind, TableCounts, TablePlan
from floodmark.core.position import POSITION_BYTES, Interval, Position
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    NetSource,
    OnGap,
    PipelineSettings,
    SecurityFiltered,
    Style,
    TableSettings,
    why_no_commit_times,
    why_no_style,
)
from floodmark.core.snapshot import (
    Feed,
    FeedIdentity,
    SourceSnapshot,
    TableSnapshot,
    TableState,
    Validity,
    Verdict,
    join_verdicts,
)
from floodmark.core.types import warehouse_type
from floodmark.core.verdicts import INCIDENTS, LEFT_OUT, classify, incident, is_quiet, is_unproven

if TYPE_CHECKING:
    from floodmark.core.snapshot import Feed

# --------------------------------------------------------------------------------------------------------------------
# The measures of the source when a window was planned, for the history of the window's tables.


@dataclass(frozen=True, slots=True)
class PlanMeasures:
    """The measures of a plan."""

    lag_seconds: float | None = None
    """The age of the end of the window; None where it is unknown or no watermark will move."""
    margin_seconds: Mapping[TableName, float] = field(default_factory=dict)
    """From the low end of the validity interval to the watermark, for tables where both times are known."""


NO_MEASURES = PlanMeasures()


def measure_plan(snapshot: SourceSnapshot, states: Mapping[TableName, TableState] | None = None) -> PlanMeasures:
    """Return the measures of a plan that ends where the snapshot does. states: of the tables that go on from there.

    Where a transaction records its changes itself, the end is as new as the snapshot.
    """
    margins = {}
    for table in snapshot.tables:
        state = (states or {}).get(table.table)
        if state and state.watermark_at and table.oldest_at:
            margins[table.table] = max((state.watermark_at - table.oldest_at).total_seconds(), 0.0)
    return PlanMeasures(0.0 if snapshot.is_synchronous else snapshot.seconds_behind, margins)


# --------------------------------------------------------------------------------------------------------------------
# Values and rows that a source hides from the login that reads it, both without any error: masks and filters.
#
# Change tables have neither masks nor filters (docs/reference/sqlserver_cdc.md, "Masks and filters"), so that loads and
# windows of such a table would not agree.


def list_masked(table_snapshot: TableSnapshot) -> tuple[str, ...]:
    """Return the captured columns that the login reads through a mask."""
    feed = table_snapshot.feed
    captured = {column.name for column in feed.table.columns} if feed else set()
    return tuple(name for name in table_snapshot.masked if name in captured)


def grant_unmask(table: TableName, grantee: str) -> str:
    """Return the statements that let a login read the real values: since SQL Server 2022, and before it."""
    securable = bracket_table(table)
    return f"GRANT UNMASK ON {securable} TO {grantee}; or, before SQL Server 2022: GRANT UNMASK TO {grantee};"


def check_readers_view(table_snapshot: TableSnapshot, *, accepts_filters: bool) -> None:
    """Raise SourcePermissionError for a table that the login does not see as it is."""
    table = table_snapshot.table
    masked = list_masked(table_snapshot)
    if masked:
        raise SourcePermissionError(
            str(table),
            f"the login reads masks in place of the values of {', '.join(masked)}.",
            f"Ask the DBA: {grant_unmask(table, 'the login')} Or leave them out of a capture instance.",
        )
    if table_snapshot.filters and not accepts_filters:
        raise SourcePermissionError(
            str(table),
            f"security policy {', '.join(table_snapshot.filters)} filters its rows, so that loads may miss some.",
            "Ask the DBA to let the login see all rows in the policy's predicate. Where the rows that it may see are"
            " enough, set security_filtered: accept for the table.",
        )


# --------------------------------------------------------------------------------------------------------------------
# The decision on what a run does next, from the snapshot of the source and the state in the ledger.


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

    to: Position
    to_at: datetime | None
    watermarks: Mapping[TableName, Position]
    """The current watermarks."""
    feeds: Mapping[TableName, FeedIdentity]
    """The feeds that were checked for changes."""


@dataclass(frozen=True, slots=True)
class Open:
    """A window must be opened."""

    to: Position
    to_at: datetime | None
    tables: tuple[TablePlan, ...]
    measures: PlanMeasures = NO_MEASURES


Decision = Fail | Skip | AdvanceQuiet | Open


def pinned_feeds(settings: PipelineSettings, states: Mapping[TableName, TableState]) -> dict[TableName, str]:
    """Return the feeds to ask for by name: the configured one, else the one that was read before."""
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
    reads = {state.read_to for state in states.values() if state.read_to and not state.consistent}
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


def plan_tables(
    settings: PipelineSettings,
    snapshot: SourceSnapshot,
    states: Mapping[TableName, TableState],
    validities: Sequence[Validity],
) -> tuple[tuple[Validity, ...], Mapping[TableName, TablePlan]]:
    """Return the verdicts, with ``not_plannable`` for tables that can never be loaded as configured, and the plans."""
    tables = {table.source: table for table in settings.tables}
    table_snapshots = {table_snapshot.table: table_snapshot for table_snapshot in snapshot.tables}
    plans: dict[TableName, TablePlan] = {}

    def planned(validity: Validity) -> Validity:
        name, state = validity.table, states.get(validity.table)
        if validity.verdict in (*PLANNED, Verdict.CAUGHT_UP):
            try:
                feed = table_snapshots[name].feed
                refuse_other_definition(tables[name], state, _names(feed) if feed else ())
                if validity.verdict in PLANNED:
                    plans[name] = plan_table(tables[name], table_snapshots[name], snapshot, state)
            except (ConfigError, NoKeyError) as error:
                return not_plannable(validity, error)
        return validity

    return tuple(map(planned, validities)), plans


def not_plannable(validity: Validity, error: FloodmarkError) -> Validity:
    """Return the verdict on a table whose plan was refused with an error."""
    changed = isinstance(error, DefinitionChangedError)
    verdict = Verdict.DEFINITION_CHANGED if changed else Verdict.NOT_PLANNABLE
    return replace(validity, verdict=verdict, cause=error.message, hint=error.hint)


def decide(
    settings: PipelineSettings,
    snapshot: SourceSnapshot,
    states: Mapping[TableName, TableState],
    validities: tuple[Validity, ...],
    plans: Mapping[TableName, TablePlan],
) -> Decision:
    """Return what the run does.

    plans: of the tables that can be planned. Those with another verdict than ``PLANNED`` by now are not used.

    Tables whose verdict is in ``LEFT_OUT`` are left out, and must be reported when the others have been published. That
    capture is stopped for some tables ends the run that has nothing else to read.
    """
    incidents = incident(settings.name, validities)
    ends = {each.verdict for each in validities if each.verdict in INCIDENTS and each.verdict not in LEFT_OUT}
    if incidents and ends - {Verdict.CAPTURE_STOPPED}:
        return Fail(incidents)
    verdicts = {validity.table: validity.verdict for validity in validities}
    chosen = [plans[table.source] for table in settings.tables if verdicts[table.source] in PLANNED]
    if incidents and (not chosen or (ends and all(table.quiet for table in chosen))):
        return Fail(incidents)
    if not chosen or not isinstance(snapshot.newest, Position):
        return Skip(_reason(validities))
    if all(table.quiet for table in chosen):
        watermarks = {table.source: table.watermark for table in chosen if table.watermark}
        feeds = {table.source: table.feed.identity for table in chosen}
        return AdvanceQuiet(snapshot.newest, snapshot.newest_at, watermarks, feeds)
    return Open(snapshot.newest, snapshot.newest_at, tuple(chosen), measure_plan(snapshot, states))


def plan_table(
    settings: TableSettings,
    table_snapshot: TableSnapshot,
    snapshot: SourceSnapshot,
    state: TableState | None,
    recorded: TableState | None = None,
) -> TablePlan:
    """Return the plan of one table of the next window; its verdict must be READY or NOT_STARTED.

    recorded: the state with the columns of the target, where the plan is one of a first load; otherwise ``state``.
    """
    assert table_snapshot.feed is not None and isinstance(snapshot.newest, Position)  # noqa: S101  (ensured by classify)
    watermark = state.watermark if state else None
    # The login may not see every policy, so the configuration counts, and not what the source shows.
    accepts_filters = settings.security_filtered is SecurityFiltered.ACCEPT
    refuse_other_definition(settings, state, _names(table_snapshot.feed))
    recorded = recorded if state is None else state
    feed = with_columns(settings, with_key(settings, table_snapshot.feed), recorded)
    check_readers_view(replace(table_snapshot, feed=feed), accepts_filters=accepts_filters)
    _refuse_style(settings, feed)
    check_net(settings, feed, table_snapshot.feed.table.key)
    for column in feed.table.stored_columns:
        warehouse_type(feed.table, column, settings.temporal)
    unproven = is_unproven(table_snapshot, state)
    quiet = watermark is not None and not unproven and is_quiet(table_snapshot, watermark)
    # What has changed is not asked, only whether something has.
    is_whole = unproven or (settings.style is Style.SNAPSHOT and not quiet)
    after = None if is_whole else watermark or (feed.start if feed.member_column else None)
    if fault := table_snapshot.plan_fault or (None if after else table_snapshot.load_fault):
        raise TableNotPlannableError(str(settings.source), fault.cause, fault.hint)
    return TablePlan(
        settings=replace(settings, net=NetSource.SERVER if feed.delivers_net else _net_source(settings, state)),
        kind=LoadKind.CHANGES if after else LoadKind.FIRST_LOAD,
        feed=feed,
        interval=Interval(after, snapshot.newest) if after else None,
        watermark=watermark,
        # Rows are in the target also of a first load that was merged and then refused by a check.
        is_reload=unproven or (after is None and state is not None and state.read_to is not None),
        keeps_unread=accepts_filters,
        quiet=quiet,
        reloads_members=settings.on_gap is OnGap.REPAIR,
        ends=table_snapshot.ends,
        rows_at=_rows_at(settings, table_snapshot),
        columns=name_columns(settings, feed, recorded),
        filled=list_filled(settings, table_snapshot.feed.table),
    )


def _rows_at(settings: TableSettings, table_snapshot: TableSnapshot) -> bytes | None:
    """Return the position of the rows of a load. A log has the place of a change in its commit in another column."""
    found = table_snapshot.rows_at
    return found[:POSITION_BYTES] if found and settings.style is Style.LOG else found


def _refuse_style(settings: TableSettings, feed: Feed) -> None:
    """Raise ConfigError where a table cannot have the style that its settings choose."""
    style = settings.style
    # Net changes that the source delivers are no choice.
    chosen = replace(settings, net=NetSource.SPARK) if feed.delivers_net else settings
    why = why_no_style(chosen) or (why_no_versions(settings.target) if style is Style.HISTORY else "")
    if style is not Style.CURRENT and not why:
        why = why_no_style_of(settings, feed)
    if why:
        raise ConfigError(
            str(settings.source), f"style: {style.value}, but {why}.", "Correct the table in pipelines.yaml."
        )
    why = why_no_commit_times(settings)
    if settings.commit_times and not why and feed.member_column:
        why = "clocks of devices are not asked, and __loaded_at has the time of the run: use commit_times: false"
    if why:
        raise ConfigError(str(settings.source), f"commit_times: true, but {why}.", "Correct it in pipelines.yaml.")


def _names(feed: Feed) -> list[str]:
    return [column.name for column in feed.table.stored_columns]


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
    if where:
        refuse_other_definition(settings, state, _names(table_snapshot.feed) if table_snapshot.feed else ())
        if settings.style is Style.LOG:
            raise ConfigError(
                str(settings.source),
                "its target is a log of changes, which has no row to correct.",
                "Reload the whole table: its rows are added to the log.",
            )
        if settings.style is Style.SNAPSHOT:
            raise ConfigError(
                str(settings.source),
                "its target is a snapshot of the table, of which all rows are of one read.",
                "Reload the whole table.",
            )
        if settings.style is Style.HISTORY:
            raise ConfigError(
                str(settings.source),
                "its target is a history, in which a load of some rows has no place.",
                "Reload the whole table: rows that differ get a version.",
            )
    plan = plan_table(settings, table_snapshot, snapshot, None, state)
    return replace(
        _redefined(plan, table_snapshot, state) if state and state.is_loaded else plan,
        kind=LoadKind.FIRST_LOAD,
        interval=None,
        watermark=state.watermark if state else None,
        is_reload=not where,
        where=where,
        # A member that is away now has not lost its rows.
        keeps_unread=plan.keeps_unread or bool(plan.feed.member_column),
    )


def _redefined(plan: TablePlan, table_snapshot: TableSnapshot, state: TableState) -> TablePlan:
    """Return the plan of a load that gives a loaded table other settings of its columns, where they have changed."""
    names = _names(table_snapshot.feed) if table_snapshot.feed else []
    columns = plan.columns
    if is_renamed(plan.settings, state, names):
        columns = name_columns(plan.settings, plan.feed, state, renames=True)
    renewed = list_renewed(plan.settings, state, names)
    if plan.feed.member_column and has_other_filter(plan.settings, state.definition):
        renewed = (*renewed, "where")
    return replace(plan, columns=columns, renewed=renewed)


def has_changed(table: TablePlan, snapshot: SourceSnapshot, settings: PipelineSettings) -> bool:
    """Return whether a table that is read itself has changed since it was planned: other columns, or another key.

    The planned statement would fail, or return values of another type. Change tables keep their columns; net changes
    that the source delivers have those of the table itself.
    """
    if table.kind is not LoadKind.FIRST_LOAD and not table.feed.delivers_net:
        return False
    table_snapshots = {table_snapshot.table: table_snapshot.feed for table_snapshot in snapshot.tables}
    feed = table_snapshots.get(table.source)
    if feed is None or feed.identity != table.feed.identity:
        return False
    declared = next((each for each in settings.tables if each.source == table.source and each.key), None)
    if declared is not None and with_key(declared, feed).table.key != table.feed.table.key:
        return True
    known = {column.source for column in table.columns}
    read = replace(feed, table=select_columns(table.settings, feed.table, known))
    read = replace(read, filtering=list_filtering(table.settings, feed))
    return _typed(read) != _typed(table.feed)


def _typed(feed: Feed) -> list[tuple[str, str]]:
    return [(column.name, column.declared_type) for column in (*feed.table.columns, *feed.filtering)]


_WITHOUT_KEY = " If there are none, set style: log, whose rows are changes, or for a small table style: snapshot."


def with_key(settings: TableSettings, feed: Feed) -> Feed:
    """Return the feed with the declared key instead of the server's, if one is declared. A log needs none.

    A snapshot of a table has none, so that one statement reads the table: chunks by key would be of several moments.
    Raises NoKeyError for a key by which rows cannot be merged, or for none.
    """
    if settings.style is Style.SNAPSHOT:
        return replace(feed, table=replace(feed.table, key=()))
    # A source to which case counts may have two columns whose names differ in nothing else.
    exact = {column.name: column for column in feed.table.columns}
    spelling = {column.name.casefold(): column for column in feed.table.columns}
    key = []
    for name in settings.key or feed.table.key:
        column = exact.get(name) or spelling.get(name.casefold())
        if column is None or column.is_computed or column.is_lob:
            kind = "not captured" if column is None else "computed" if column.is_computed else column.declared_type
            raise NoKeyError(
                str(settings.source),
                f"key column {name} is {kind}, so rows cannot be merged by it.",
                "Declare another key (key: [..] in pipelines.yaml), or capture the column.",
            )
        key.append(column.name)
    if not key and settings.style is not Style.LOG:
        keeps_all = not feed.delivers_net and not feed.has_members
        raise NoKeyError(
            str(settings.source),
            "the table has neither a primary key nor a declared key, so its rows cannot be merged.",
            "Declare one: key: [..] in pipelines.yaml, of columns that identify a row."
            + (_WITHOUT_KEY if keeps_all else ""),
        )
    return replace(feed, table=replace(feed.table, key=tuple(key)))


def _reason(validities: tuple[Validity, ...]) -> str:
    waiting = [validity for validity in validities if validity.verdict is not Verdict.CAUGHT_UP]
    if waiting:
        return join_verdicts(waiting)
    newest = next((str(validity.newest) for validity in validities), "unknown")
    return f"every table is caught up with the source ({newest})."


# --------------------------------------------------------------------------------------------------------------------
# The lines that a load job writes to standard output: one when it begins, two around the start of Spark, where it is
# needed, and one with its result.
#
# ``spark_jobs/load_window.py`` prints them; the last one is success or error, never both. Airflow's operator and the
# CLI read them. An error arrives with its class, so that the class decides between retry and failure, and not a
# message.


STARTED = "FLOODMARK_STARTED"
"""The first line, and the one after Spark's start: the job can work."""
STARTING = "FLOODMARK_STARTING_SPARK"
"""The line before Spark's start. A job that ends before the next STARTED had no Java or no Spark."""
PREFIX = "FLOODMARK_RESULT "


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load job."""

    window_id: int
    counts: Mapping[str, TableCounts] = field(default_factory=dict)
    """The rows by source table, as text."""
    error: FloodmarkError | None = None
    """None: the window is merged."""


def format_load_result(result: LoadResult) -> str:
    """Return one line, without the newline."""
    document: dict[str, object] = {"window_id": result.window_id}
    if result.error is None:
        document["tables"] = {table: asdict(counts) for table, counts in result.counts.items()}
    else:
        error = result.error
        document["error"] = {
            "type": type(error).__name__,
            "subject": error.subject,
            "message": error.message,
            "hint": error.hint,
            "detail": error.detail,
        }
    return PREFIX + json.dumps(document, ensure_ascii=False)


def parse_load_result(line: str) -> LoadResult | None:
    """Return the result in a line of output, None for any other line.

    Raises FloodmarkBugError for a line that begins like a result and is not one.
    """
    if not line.startswith(PREFIX):
        return None
    try:
        document = json.loads(line.removeprefix(PREFIX))
        counts = {table: TableCounts(**rows) for table, rows in document.get("tables", {}).items()}
        found = document.get("error")
        return LoadResult(document["window_id"], counts, _error(found) if found else None)
    except (ValueError, TypeError, KeyError) as problem:
        raise FloodmarkBugError(
            "load", "the job's result could not be read.", "", f"{problem}: {line.strip()}"
        ) from problem


def _error(fields: Mapping[str, str]) -> FloodmarkError:
    kind = getattr(errors, fields["type"], None)
    if isinstance(kind, type) and issubclass(kind, FloodmarkError):
        return kind(fields["subject"], fields["message"], fields["hint"], fields.get("detail", ""))
    return FloodmarkBugError(
        fields["subject"], f"{fields['type']}: {fields['message']}", fields["hint"], fields.get("detail", "")
    )


def format_error(error: FloodmarkError) -> str:
    """Return one table's error as text, for a row of a task's results."""
    return format_load_result(LoadResult(0, error=error))


def parse_error(text: str) -> FloodmarkError:
    """Return the error that ``format_error`` wrote. Raises ValueError for any other text."""
    found = parse_load_result(text)
    if found is None or found.error is None:
        raise ValueError("the text has no error")
    return found.error
