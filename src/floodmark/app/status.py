"""The status of a pipeline as values, as JSON and as sentences, its comparison with the source, and the doctor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from croniter import croniter  # type: ignore[import-untyped]

from floodmark.app.connections import spark_target
from floodmark.app.upkeep import current_stop, find_pattern_tables, likely_stop, list_drift, list_written
from floodmark.core.doctor import (
    DiagnosisInput,
    Finding,
    Grade,
    examine_access,
    examine_engine,
    examine_lake,
    examine_patterns,
    examine_server,
    worst,
)
from floodmark.core.drift import describe
from floodmark.core.errors import ConfigError, FloodmarkError, command_line
from floodmark.core.naming import versions_name
from floodmark.core.planning import classify_tables, known_positions, pinned_feeds
from floodmark.core.progress import say_waiting
from floodmark.core.settings import Deletes, Style
from floodmark.core.status import DriftNote, PipelineStatus, TableHistory, TableStatus
from floodmark.core.upkeep import ENDLESS_SECONDS, format_bytes
from floodmark.sync.preview import NextStep, RunPreview, TablePreview, preview_run
from floodmark.sync.status import Limits, LiveSource, StatusReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodmark.app.pipeline import Pipeline
    from floodmark.core.patterns import ListedTable
    from floodmark.core.schema import TableName
    from floodmark.core.settings import PipelineSettings
    from floodmark.core.snapshot import MemberMark
    from floodmark.core.status import TableVerification
    from floodmark.sync.records import DriftEvent

# --------------------------------------------------------------------------------------------------------------------
# The status of a pipeline, for the command line and for the page in Airflow.


def read_status(pipeline: Pipeline, *, live: bool) -> PipelineStatus:
    """Return the status of a pipeline. live: from the source as it is now, and not as the last run recorded it."""
    config, now = pipeline.config, datetime.now(UTC)
    limits = Limits(config.source, config.freshness.total_seconds(), now, current_stop(pipeline, now))
    reader = StatusReader(pipeline.settings, limits, pipeline.ledger, pipeline.app.status_ledger)
    if not live:
        return reader.read_status()
    feeds = pinned_feeds(pipeline.settings, reader.states)
    positions = known_positions(reader.states)
    snapshot = pipeline.source.snapshots().read_snapshot(pipeline.settings.sources, feeds, positions)
    return reader.read_status(LiveSource(snapshot, pipeline.source.read_progress(reader.watermarks, reader.marks)))


def preview_next_run(pipeline: Pipeline) -> RunPreview:
    """Return what the next run of a pipeline does. It reads source, warehouse and ledger, and writes nothing."""
    config, now = pipeline.config, datetime.now(UTC)
    stop = current_stop(pipeline, now)
    limits = Limits(config.source, config.freshness.total_seconds(), now, stop)
    listed = find_pattern_tables(pipeline)
    settings = _settings_of(pipeline, listed)
    preview = preview_run(
        settings,
        pipeline.source.snapshots(),
        StatusReader(settings, limits, pipeline.ledger, pipeline.app.status_ledger),
        pipeline.app.status_ledger.list_plans(pipeline.name),
        pipeline.app.targets.check_target,
        planned_stop=stop,
    )
    not_taken = [
        TablePreview(each.table, None, NextStep.LEFT_OUT, f"{each.reason}.", each.fix) for each in listed if each.reason
    ]
    return replace(preview, tables=(*preview.tables, *not_taken))


def preview_remarks(preview: RunPreview) -> list[str]:
    """Return the sentences below a preview: hints, new columns, and what is new in the settings."""
    found = []
    if preview.unfinished_window_id is not None:
        found.append(f"Before that, it finishes window {preview.unfinished_window_id}.")
    for table in preview.tables:
        if table.hint:
            found.append(f"{table.source}: {table.hint}")
        if table.new_columns:
            found.append(f"{table.source}: {table.target} gets the columns {', '.join(table.new_columns)}.")
        found += [f"{table.source}: {each.name}: {each.before} -> {each.now}. {each.effect}" for each in table.changed]
    return found


def preview_document(preview: RunPreview) -> dict[str, Any]:
    """Return a preview as programs read it, in JSON."""
    tables = [
        {
            "source": str(table.source),
            "target": str(table.target) if table.target else None,
            "step": table.step.value.replace(" ", "_"),
            "reason": table.reason,
            "hint": table.hint,
            "new_columns": table.new_columns,
            "changed": [asdict(each) for each in table.changed],
        }
        for table in preview.tables
    ]
    return {"pipeline": preview.pipeline, "unfinished_window_id": preview.unfinished_window_id, "tables": tables}


def read_history(pipeline: Pipeline, table: TableName, at_most: int) -> TableHistory:
    """Return the history of a table. at_most: of each part."""
    history = pipeline.app.status_ledger.read_history(pipeline.name, table, at_most)
    events = [
        each
        for each in list_drift(pipeline.app, everything=True)
        if (each.source, each.table.folded) == (pipeline.config.source, table.folded)
    ]
    newest = sorted(events, key=lambda each: each.event_id, reverse=True)[:at_most]
    return replace(history, drift=tuple(_drift_note(each) for each in newest))


def _drift_note(event: DriftEvent) -> DriftNote:
    decision = "undecided"
    if event.is_rejected:
        decision = f"rejected by {event.approved_by}" if event.approved_by else "rejected"
    elif event.approved_at is not None:
        decision = f"approved by {event.approved_by}"
    what = describe(event.explained.difference)
    return DriftNote(event.event_id, event.found_at, what, decision, event.proposal)


# --------------------------------------------------------------------------------------------------------------------
# The status of pipelines as JSON, for ``floodmark status --json`` and for the page in Airflow.


def status_json(statuses: Sequence[PipelineStatus]) -> str:
    """Return the status of the pipelines as JSON."""
    return json_text([asdict(status) for status in statuses])


def json_text(document: Any) -> str:
    """Return a document of lists, dictionaries, plain values and times as JSON."""
    return json.dumps(document, default=_as_text, indent=2)


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


# --------------------------------------------------------------------------------------------------------------------
# The parts of a status in words, for the terminal and for the page in Airflow.


def title(status: PipelineStatus) -> str:
    """Return the name of a pipeline, and its unfinished window."""
    if status.unfinished_window_id is None:
        return f"pipeline {status.pipeline}"
    return (
        f"pipeline {status.pipeline}: window {status.unfinished_window_id} is unfinished ({status.unfinished_state}); "
        "the current or the next run finishes it"
    )


def remarks(status: PipelineStatus) -> list[str]:
    """Return the remarks. One that applies to several tables is made once."""
    concerned: dict[str, list[str]] = {}
    for table in status.tables:
        if table.reason and table.reason != say_waiting(table.waiting_rows):
            concerned.setdefault(f"{table.reason}: {table.cause} {table.hint}".rstrip(), []).append(table.source)
    lines = [str(status.planned_stop)] if status.planned_stop else []
    lines += [f"{_names(tables, status)}: {remark}" for remark, tables in concerned.items()]
    lines += [
        f"{table.source}: {say_waiting(table.waiting_rows)}: {command_line('quarantine', 'list', status.pipeline)}"
        for table in status.tables
        if table.waiting_rows
    ]
    lines += [f"{table.source}: {table.switch}" for table in status.tables if table.switch]
    lines += [f"{table.source}: drift: {drift}" for table in status.tables for drift in table.drift]
    lines += [
        f"alert since {alert.raised_at:%Y-%m-%d %H:%M} UTC: {alert.kind.replace('_', ' ')}: {alert.what}"
        for alert in status.alerts
    ]
    return lines


def _names(tables: Sequence[str], status: PipelineStatus) -> str:
    are_all = len(tables) == len(status.tables) > 1
    return f"all {len(tables)} tables" if are_all else ", ".join(tables)


@dataclass(frozen=True, slots=True)
class TableTexts:
    """A table in words. An unknown value is "-"; a text without content is empty."""

    source: str
    target: str
    standing: str
    verdict: str
    state: str
    """With the progress of a load."""
    drift: str
    lag: str
    behind: str
    """The transactions or messages of the source that were not read."""
    headroom: str
    """A time; where that is unknown, a number of transactions."""
    margin: str
    """What the ledger has instead of the headroom, "" where it has nothing."""
    read: str
    changed: str
    waiting: str
    """The rows that wait in quarantine."""
    watermark: str
    watermark_at: str
    change_tables: str


def table_texts(table: TableStatus) -> TableTexts:
    """Return a table in words."""
    last = table.last_window
    state = table.state
    if table.load_percent is not None:
        kind = state if state == "first_load" else f"{state}, loading"
        state = f"{kind} {table.load_percent} %, {table.load_rows:,} rows"
    behind, headroom = table.transactions_behind, table.headroom_transactions
    return TableTexts(
        source=table.source,
        target=table.target,
        standing=table.standing,
        verdict=table.verdict,
        state=state,
        drift=f"{len(table.drift)} drift open" if table.drift else "",
        lag=lag_text(table.lag_seconds, table.least_lag_seconds),
        behind=_number(behind, "tx") if table.unread_messages is None else _number(table.unread_messages, "msg"),
        headroom=_number(headroom, "tx") if table.headroom_seconds is None else duration_text(table.headroom_seconds),
        margin="" if last is None or last.margin_seconds is None else duration_text(last.margin_seconds),
        read=f"{last.read_rows:,}" if last else "-",
        changed=changed_text(last.inserted_rows, last.updated_rows, last.deleted_rows) if last else "-",
        waiting=f"{table.waiting_rows:,}" if table.waiting_rows else "",
        watermark=table.watermark or "-",
        watermark_at=f"{table.watermark_at:%Y-%m-%d %H:%M:%S}" if table.watermark_at else "",
        change_tables=_change_tables(table),
    )


def _number(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value:,} {unit}"


def _change_tables(table: TableStatus) -> str:
    """Return the sizes of a table's change tables, with names where there are two, as during a switch."""
    lines = []
    for each in table.change_tables:
        if len(table.change_tables) > 1:
            lines.append(f"{each.instance}:")
        lines.append("-" if each.rows is None else f"{each.rows:,} rows")
        lines += [] if each.size_bytes is None else [format_bytes(each.size_bytes)]
    return " ".join(lines)


def changed_text(inserted: int, updated: int, deleted: int) -> str:
    """Return how many rows a window changed, for a page."""
    return f"+{inserted:,} ~{updated:,} \N{MINUS SIGN}{deleted:,}"


def lag_text(seconds: float | None, least: float | None) -> str:
    """Return a lag. least: the least that it is, where it is not known."""
    return f"at least {duration_text(least)}" if seconds is None and least is not None else duration_text(seconds)


def duration_text(seconds: float | None) -> str:
    """Return a time in days and hours, "-" where it is unknown."""
    if seconds is None:
        return "-"
    if seconds > ENDLESS_SECONDS:
        return "no end"
    whole = timedelta(seconds=round(seconds))
    rest = whole - timedelta(days=whole.days)
    return f"{whole.days}d {rest}" if whole.days else str(rest)


# --------------------------------------------------------------------------------------------------------------------
# The comparison of source and warehouse, row by row.


def verify_pipeline(
    pipeline: Pipeline, tables: Sequence[str] = (), sample_percent: float | None = None
) -> Iterator[TableVerification]:
    """Compare the tables of a pipeline with their targets, in the order of the configuration.

    tables: only these, by their names at the source; none for all. sample_percent: about this share of their rows.
    Raises from ``core.errors``; ConfigError for an unknown table.
    """
    from floodmark.sync.verify import VerifyOptions, verify_tables  # noqa: PLC0415  (pyarrow: no other command needs it)

    chosen = [pipeline.find_table(each).source for each in tables]
    return verify_tables(
        pipeline.settings,
        pipeline.source.snapshots(),
        pipeline.source.reader(),
        pipeline.ledger,
        pipeline.app.row_comparer,
        progress=pipeline.app.progress,
        options=VerifyOptions(chosen, sample_percent),
        mask_keys=pipeline.mask_keys(),
    )


# --------------------------------------------------------------------------------------------------------------------
# The examination of a pipeline's source. It queries the source, and ``core.doctor`` judges the answers.


_TICKS = 300


def examine_source(pipeline: Pipeline) -> tuple[Finding, ...]:
    """Return the findings about the source of a pipeline, and about the engine that reads it.

    Where the login has a problem, its findings take the place of those about the source.
    The doctor runs before there is a ledger, and when the warehouse is down: that is a finding, and of a stream it does
    not know then what was read.
    """
    login = tuple(pipeline.source.examine_login())
    if worst(login) is Grade.PROBLEM:
        return (*login, *_examine_engine(), *_examine_warehouse(pipeline), *_examine_masks(pipeline))
    beats = pipeline.app.config.source_of(pipeline.name).beat_table
    heartbeat = pipeline.source.examine_heartbeat(pipeline.settings.source_name, beats)
    warehouse = (*_examine_warehouse(pipeline), *_examine_masks(pipeline))
    return (*login, *_diagnose(pipeline), *_examine_engine(), *warehouse, *heartbeat)


def _diagnose(pipeline: Pipeline) -> tuple[Finding, ...]:
    now = datetime.now(UTC)
    stop = likely_stop(pipeline, now)
    now_utc = now.replace(tzinfo=None)
    listed = find_pattern_tables(pipeline)
    settings = _settings_of(pipeline, listed)
    snapshot = pipeline.source.snapshots().read_snapshot(settings.sources, pinned_feeds(settings, {}))
    found = pipeline.source.diagnose(
        DiagnosisInput(
            settings,
            snapshot,
            classify_tables(settings, snapshot, {}, stop),
            *pipeline.source.encryption(),
            longest_interval(pipeline.config.schedule, now_utc),
            now_utc,
            stop,
            pipeline.config.freshness,
        ),
        lambda: _likely_marks(pipeline),
    )
    return (*found, *examine_patterns(listed, pipeline.name))


def _examine_engine() -> Iterator[Finding]:
    spark = spark_target()
    if spark.server:
        return examine_server(spark.master, is_loopback=spark.is_loopback, has_tls=spark.has_tls)
    return examine_engine(spark.master, spark.conf)


def _settings_of(pipeline: Pipeline, listed: Sequence[ListedTable]) -> PipelineSettings:
    """Return the settings of a pipeline as its next run would have them."""
    patterns = pipeline.app.config.patterns_of(pipeline.name)
    return pipeline.settings_with(patterns.list_taken(listed))


def _examine_warehouse(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the findings on the warehouse, also where no run has created anything yet."""
    targets = list_written(pipeline.settings)
    replaced = {table.target for table in pipeline.settings.tables if table.style is Style.SNAPSHOT}
    hard = {table.target for table in pipeline.settings.tables if table.deletes is Deletes.HARD}
    aged = {versions_name(table.target) for table in pipeline.settings.tables if table.keep_versions is not None}
    try:
        for access in pipeline.app.read_access(targets, replaced | hard | aged):
            yield from examine_access(access)
        if pipeline.app.is_lake:
            yield from examine_lake(pipeline.app.read_lake_access(targets), pipeline.name)
    except FloodmarkError as error:
        yield Finding(Grade.PROBLEM, "connection", "warehouse", f"{error.subject}: {error.message}", error.hint)


def _examine_masks(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the finding on the secrets of masks; none where no column is masked by a hash."""
    try:
        for conn_id in pipeline.mask_keys():
            yield Finding(Grade.GOOD, "mask key", f"connection {conn_id}", "it has a secret for the hashes of masks.")
    except ConfigError as error:
        yield Finding(Grade.PROBLEM, "mask key", error.subject, error.message, error.hint)


def _likely_marks(pipeline: Pipeline) -> Mapping[TableName, Sequence[MemberMark]]:
    """Return where tables were read to; nothing where the ledger cannot be read, or there is none yet."""
    try:
        return pipeline.ledger.list_marks(pipeline.name)
    except FloodmarkError:
        return {}


def longest_interval(schedule: str | None, after: datetime) -> timedelta | None:
    """Return the longest time between two of the next few hundred runs of a cron schedule; None without a schedule."""
    if schedule is None:
        return None
    ticks = croniter(schedule, after)
    times: list[datetime] = [ticks.get_next(datetime) for _ in range(_TICKS)]
    return max(later - earlier for earlier, later in pairwise(times))


def write_grants(pipeline: Pipeline, login: str) -> str:
    """Return the script that grants a login the permissions for the tables of a pipeline.

    The script names what the connection's own login can see.
    """
    settings = _settings_of(pipeline, find_pattern_tables(pipeline))
    snapshot = pipeline.source.snapshots().read_snapshot(settings.sources, pinned_feeds(settings, {}))
    heartbeat = pipeline.app.config.heartbeat_of(pipeline.name)
    return pipeline.source.build_grants(login, settings, snapshot, heartbeat)
