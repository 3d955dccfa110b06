"""The upkeep of a source: its capture job, its retention, and the watch for schema drift."""

from __future__ import annotations

import getpass
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from floodmark.config.sections import planned_stop
from floodmark.core.alerts import (
    CAPTURE_RUN_FAILED,
    LAKE,
    LAKE_UPKEEP_FAILED,
    RETENTION_RUN_FAILED,
    TABLE_NOT_TAKEN,
    table_not_taken,
)
from floodmark.core.errors import ConfigError, FloodmarkError
from floodmark.core.naming import versions_name
from floodmark.core.patterns import ListedTable, select_tables
from floodmark.core.position import parse_position
from floodmark.core.settings import Style
from floodmark.sync import upkeep
from floodmark.sync.drift_watch import alert_key

if TYPE_CHECKING:
    from floodmark.app.pipeline import App, Pipeline
    from floodmark.config.sections import CaptureConfig, RetentionConfig
    from floodmark.core.capture import PlannedStop
    from floodmark.core.schema import TableName
    from floodmark.core.settings import PipelineSettings
    from floodmark.iceberg.metadata import LakeTable
    from floodmark.sync.records import DriftEvent

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The upkeep of a source: its capture job with the planned stops, and its retention.


_START_TIME = timedelta(minutes=10)
"""The time after the end of a planned stop in which the DAG starts the job."""


def keep_capture(app: App, source: str, kept: CaptureConfig, now: datetime) -> str:
    """Bring the capture job to the state that the schedule requires now. Return what was done and why."""
    stop = planned_stop(kept, now)
    step = upkeep.keep_capture(
        source,
        kept.settings(),
        stop,
        now,
        control=app.source(source, kept.conn_id).jobs(),
        ledger=app.stop_ledger,
        alerts=app.alerts,
    )
    app.alerts.end_alerts(CAPTURE_RUN_FAILED, source)
    return f"{step.action.value}: {step.reason}"


def keep_retention(app: App, source: str, kept: RetentionConfig) -> str:
    """Bring the retention to the value that is wanted now. Return the forecast and what was done, in one sentence."""
    readers = {each.name: frozenset(each.settings.sources) for each in app.pipelines_of(source)}
    step = upkeep.keep_retention(
        source,
        kept.settings(),
        readers,
        control=app.source(source, kept.conn_id).retention(),
        ledger=app.mark_ledger,
        alerts=app.alerts,
    )
    app.alerts.end_alerts(RETENTION_RUN_FAILED, source)
    return f"{step.forecast or 'no table has a watermark'}: {step.reason}"


def current_stop(pipeline: Pipeline, now: datetime) -> PlannedStop | None:
    """Return the current planned stop of the capture job.

    None also for a stop that was ended early: after that, a job that does not run is an incident.
    """
    stop = scheduled_stop(pipeline, now)
    if stop is None:
        return None
    return None if pipeline.app.stop_ledger.read_ended_stop(pipeline.config.source, stop.since) else stop


def likely_stop(pipeline: Pipeline, now: datetime) -> PlannedStop | None:
    """Return ``current_stop``, or ``scheduled_stop`` where the ledger cannot be read."""
    try:
        return current_stop(pipeline, now)
    except FloodmarkError:
        return scheduled_stop(pipeline, now)


def scheduled_stop(pipeline: Pipeline, now: datetime) -> PlannedStop | None:
    """Return the stop according to the configuration alone, whether or not it was ended early."""
    kept = pipeline.app.config.sources[pipeline.config.source].capture
    if kept is None:
        return None
    return planned_stop(kept, now) or planned_stop(kept, now - _START_TIME)


# --------------------------------------------------------------------------------------------------------------------
# The tables of a lake: their files, their upkeep, and their snapshots.


def list_lake(app: App) -> Sequence[LakeTable]:
    """Return the tables of all pipelines that readers of the lake see. Raises ConfigError for another warehouse."""
    return app.lake_upkeep.list_tables(_targets(app))


def keep_lake(app: App, keep: timedelta, *, rewrites: bool = False) -> Iterator[tuple[TableName, str]]:
    """Keep the tables of all pipelines. Yield each with what was done. Raises from ``core.errors``.

    keep: how long readers can go back. rewrites: compact all tables, also where it is not due.
    """
    aged = {
        versions_name(table.target): table.keep_versions
        for pipeline in app.pipelines.values()
        for table in pipeline.settings.tables
        if table.keep_versions is not None
    }
    return app.lake_upkeep.keep_tables(_targets(app), keep, aged, rewrites=rewrites)


def run_lake_upkeep(app: App) -> str:
    """Keep the tables of the lake by the configuration. Return how many; the log has what was done. Raises as above."""
    tables = 0
    for target, done in keep_lake(app, app.config.warehouse.lake_upkeep.keep):
        tables += 1
        _LOG.info("%s: %s.", target, done)
    app.alerts.end_alerts(LAKE_UPKEEP_FAILED, LAKE)
    return "1 table" if tables == 1 else f"{tables} tables"


def register_lake(app: App) -> Sequence[TableName]:
    """Register the tables of all pipelines in the REST catalog of readers. Return those that were elsewhere.

    Raises ConfigError where the configuration names none, and from ``core.errors``.
    """
    if not app.lake_registry:
        raise ConfigError("warehouse", "it has no catalog_conn_id, which names a REST catalog.")
    return app.register_tables(_targets(app))


def find_snapshots(pipeline: Pipeline, position: str) -> Sequence[tuple[TableName, int | None, str]]:
    """Return each table with its snapshot that has all changes up to a position and none after it.

    With it comes the position up to which it has changes: None and "" where no snapshot is that old. Raises ConfigError
    for a text that is no position, and as ``list_lake``.
    """
    try:
        wanted = parse_position(position)
    except ValueError:
        raise ConfigError("as-of", f"{position} is no position.", "Such as floodmark status shows it.") from None
    tables = pipeline.app.lake_upkeep.list_tables(list_written(pipeline.settings))
    return [(table.target, *table.snapshot_at(wanted)) for table in tables]


def _targets(app: App) -> list[TableName]:
    return [target for pipeline in app.pipelines.values() for target in list_written(pipeline.settings)]


def list_written(settings: PipelineSettings) -> list[TableName]:
    """Return the tables of the warehouse that a pipeline writes: a history has two."""
    return [
        written
        for table in settings.tables
        for written in (table.target, *([versions_name(table.target)] if table.style is Style.HISTORY else []))
    ]


# --------------------------------------------------------------------------------------------------------------------
# The tables that the patterns of a pipeline stand for.


def take_tables(pipeline: Pipeline) -> None:
    """Ask the source which tables the patterns of a pipeline stand for, record them, and report those left out.

    It does nothing for a pipeline without patterns. Raises from ``core.errors``.
    """
    if not pipeline.config.patterns:
        return
    pipeline.ledger.ensure_schema()
    recorded = pipeline.ledger.list_pattern_tables(pipeline.name)
    listed = list_pattern_tables(pipeline, recorded)
    if set(listed) != set(recorded):
        pipeline.ledger.record_pattern_tables(pipeline.name, listed)
        pipeline.forget_settings()
    raised = [table_not_taken(pipeline.name, each) for each in listed if each.reason]
    for alert in raised:
        pipeline.alerts.raise_alert(alert)
    pipeline.alerts.end_alerts(TABLE_NOT_TAKEN, pipeline.name, keep=[alert.event_key for alert in raised])


def list_pattern_tables(pipeline: Pipeline, recorded: Sequence[ListedTable]) -> tuple[ListedTable, ...]:
    """Return every table of the source that a pattern matches, as the next run would record it.

    recorded: what the runs before have recorded. Raises from ``core.errors``.
    """
    capture = pipeline.app.config.source_of(pipeline.name).capture
    beats = capture.heartbeat if capture else None
    found = [table for table in pipeline.source.list_tables() if table != beats]
    return select_tables(pipeline.app.config.patterns_of(pipeline.name), found, recorded)


def find_pattern_tables(pipeline: Pipeline) -> tuple[ListedTable, ...]:
    """Return what the next run would record, also where the ledger cannot be read: then as a first run would."""
    if not pipeline.config.patterns:
        return ()
    recorded: Sequence[ListedTable] = ()
    with suppress(FloodmarkError):
        recorded = pipeline.ledger.list_pattern_tables(pipeline.name)
    return list_pattern_tables(pipeline, recorded)


def list_not_taken(app: App) -> list[tuple[str, ListedTable]]:
    """Return the tables that match a pattern and are in no window, as the last runs found them, by pipeline."""
    found = (
        (each.name, each.ledger.list_pattern_tables(each.name))
        for each in app.pipelines.values()
        if each.config.patterns
    )
    return [(name, table) for name, tables in found for table in tables if table.reason]


# --------------------------------------------------------------------------------------------------------------------
# Schema drift: the watch of a source, its events, and the holds that the operator ends.


def watch_drift(app: App, source: str) -> str:
    """Compare every table of the source with its recorded shape. Return the held tables, in one sentence."""
    readers = app.pipelines_of(source)
    held = []
    if readers:
        app.ledger.ensure_schema()
        for each in readers:
            take_tables(each)
        known = {each.name: app.ledger.read_tables(each.name) for each in readers}
        holds = readers[0].drift_watch.watch(readers[0].source.snapshots(), known)
        held = [f"{hold.table} in {hold.pipeline}" for hold in holds]
    names = ", ".join(each.name for each in readers)
    outcome = f"held: {', '.join(held)}" if held else "no table is held"
    out = [f"{each.table} in {name}" for name, each in list_not_taken(app) if name in {each.name for each in readers}]
    outcome += f"; not taken up: {', '.join(out)}" if out else ""
    _LOG.info("Source %s: checked the tables of %s; %s.", source, names or "no pipeline", outcome)
    return outcome


def is_check_due(app: App, source: str) -> bool:
    """Return whether ``watch_drift`` would read the details of a table that is as it was known.

    It asks the ledger alone. A table counts by its newest check: those of its former instances are not repeated.
    """
    watch = app.pipelines_of(source)[0].drift_watch
    names = {str(table).casefold() for pipeline in app.pipelines_of(source) for table in pipeline.settings.sources}
    ages: dict[TableName, float] = {}
    for (table, _), known in app.drift_ledger.read_known(source).items():
        if known.absent is None and str(table).casefold() in names:
            age = math.inf if known.age_seconds is None else known.age_seconds
            ages[table] = min(age, ages.get(table, math.inf))
    return any(age >= watch.details_seconds for age in ages.values()) or bool(watch.awaiting_ddl())


def list_drift(app: App, *, everything: bool) -> list[DriftEvent]:
    """Return the events of the sources of the configuration. everything: also the decided events."""
    events = [event for event in app.drift_ledger.list_events() if event.source in app.config.sources]
    return [event for event in events if everything or event.approved_at is None]


def approve_drift(app: App, event_id: int, by: str) -> DriftEvent:
    """End the holds of an event, and its alert. by: the operator. Raises OperatorError for an unknown event."""
    event = app.drift_ledger.approve(event_id, by)
    app.alerts.end_alert(alert_key(event_id), f"{by} approved it.")
    return event


def release_table(pipeline: Pipeline, table: str) -> Sequence[int]:
    """End every hold on a table of a pipeline, and the alerts of the events that no longer hold anything.

    Raises OperatorError where the table is not held.
    """
    name, by = pipeline.parse_table(table), getpass.getuser()
    ended = pipeline.app.drift_ledger.release(pipeline.name, name, by)
    for event_id in ended:
        pipeline.alerts.end_alert(alert_key(event_id), f"{by} ended every hold on {name} in pipeline {pipeline.name}.")
    return ended
