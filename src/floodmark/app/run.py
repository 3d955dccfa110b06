"""A run of a pipeline outside of Airflow, what every run ends with, and loads of single tables."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.app.alerts import measure_run, reported_failure
from floodmark.app.upkeep import current_stop, list_written, take_tables
from floodmark.core.alerts import LAG, LOAD_RUN_FAILED, RUN_FAILED, RUN_LATE, TABLE_NOT_TAKEN
from floodmark.core.errors import ConfigError, FloodmarkError
from floodmark.core.plan import WindowState, is_load_lane, is_replay_lane
from floodmark.sync.alerts import end_left_out, find_stopped, update_left_out, update_quarantined, update_waiting
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.open_window import open_window
from floodmark.sync.repair import LoadPlanner, end_repair, resolve_repair_alerts
from floodmark.sync.window import OpenResult

if TYPE_CHECKING:
    from floodmark.app.pipeline import Pipeline
    from floodmark.core.plan import AdvanceResult, WindowPlan
    from floodmark.core.schema import TableName
    from floodmark.sync.records import OpenedWindow

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# One run of a pipeline: open the next window, load, check and advance it.


StartLoad = Callable[["Pipeline", int], None]
"""A function that runs the load job of a window and returns when it has ended. Raises the error of the job."""


def run_pipeline(pipeline: Pipeline, start_load: StartLoad, show: Callable[[AdvanceResult], None]) -> str:
    """Run one window without a scheduler. Return why there was nothing to read, "" after a window was published.

    show: receives the result of the window. Raises from ``core.errors``, after the alert about a failed run; also while
    a table of the pipeline is left out, after the other tables have been published.
    """
    with reported_failure(pipeline):
        opened = open_next(pipeline)
        if opened.window_id is None:
            register_tables(pipeline)
            close_run(pipeline)
            return opened.reason
        result = finish_window(pipeline, opened, start_load)
        show(result)
        stopped = find_stopped(pipeline.settings, pipeline.ledger)
        close_run(pipeline, result)
        if stopped:
            raise stopped
    return ""


def open_next(pipeline: Pipeline) -> OpenResult:
    """Return the unfinished window, or a new one. Raises what ``open_window`` raises."""
    with pipeline.kept_sessions():
        take_tables(pipeline)
        _require_tables(pipeline)
        return open_window(
            pipeline.settings,
            pipeline.source.snapshots(),
            pipeline.ledger,
            pipeline.drift_watch,
            current_stop(pipeline, datetime.now(UTC)),
            alerts=pipeline.alerts,
        )


def _require_tables(pipeline: Pipeline) -> None:
    if not pipeline.settings.tables:
        patterns = ", ".join(str(each.entry.pattern) for each in pipeline.config.patterns)
        raise ConfigError(
            pipeline.name,
            f"no table whose changes the source records matches {patterns}.",
            "Correct the pattern, track a table, or let the login of the source see it.",
        )


def finish_window(pipeline: Pipeline, opened: OpenResult, start_load: StartLoad) -> AdvanceResult:
    """Load, check and advance an opened window."""
    assert opened.window_id is not None  # noqa: S101  (the caller has opened one)
    if opened.state is WindowState.PLANNED:
        start_load(pipeline, opened.window_id)
    check_window(opened.window_id, pipeline.ledger, pipeline.quality)
    return publish_run(pipeline, opened.window_id)


def publish_run(pipeline: Pipeline, window_id: int) -> AdvanceResult:
    """Publish a checked window, move its watermarks, and register its tables. Raises WatermarkConflictError."""
    with pipeline.kept_sessions():
        result = advance_window(window_id, pipeline.ledger, pipeline.warehouse)
    register_tables(pipeline)
    return result


def register_tables(pipeline: Pipeline) -> None:
    """Register the tables of a pipeline in the REST catalog of readers, where there is one. Raises its errors.

    A run without anything to read does so too: the catalog may have been away when the last window was published.
    """
    pipeline.app.register_tables(list_written(pipeline.settings))


def is_merged(pipeline: Pipeline, window_id: int) -> bool:
    """Return whether the ledger says that a window has been merged."""
    return pipeline.ledger.read_window(window_id).state is not WindowState.PLANNED


def is_outdated(pipeline: Pipeline, opened: OpenedWindow) -> bool:
    """Return whether a window was published before, and a watermark that it moved has moved on since then."""
    plan = opened.plan
    if opened.state is not WindowState.ADVANCED or is_replay_lane(plan.lane):
        return False
    states = pipeline.ledger.read_tables(plan.pipeline)
    found = [states[table.source].watermark for table in plan.tables if table.source in states]
    return any(watermark is not None and watermark > plan.to for watermark in found)


# --------------------------------------------------------------------------------------------------------------------
# The housekeeping at the end of a run, after its window has been published or there was nothing to read.


DELETED_AT_ONCE = 200


def close_run(pipeline: Pipeline, result: AdvanceResult | None = None) -> None:
    """End the alerts whose cause has ended, raise those about tables that are left out, delete old windows, and measure
    the lag."""
    heartbeat = pipeline.app.config.heartbeat_of(pipeline.name)
    with pipeline.kept_sessions():
        _end_alerts(pipeline)
        pipeline.source.keep_heartbeat(pipeline.name, heartbeat, lambda: pipeline.ledger, pipeline.alerts)
        _delete_old_windows(pipeline)
        _delete_old_versions(pipeline)
        measure_run(pipeline, result)


def _delete_old_windows(pipeline: Pipeline) -> None:
    """Delete the oldest windows, at most ``DELETED_AT_ONCE`` per run."""
    keep_seconds = pipeline.config.keep_windows.total_seconds()
    try:
        count = pipeline.ledger.delete_old_windows(pipeline.name, keep_seconds, DELETED_AT_ONCE)
    except FloodmarkError as error:
        _LOG.warning("Could not delete old windows of %s from the ledger: %s", pipeline.name, error)
        return
    if count:
        _LOG.info("Old windows deleted from the ledger (keep_windows): %s.", count)


def _delete_old_versions(pipeline: Pipeline) -> None:
    """Delete versions of histories that ended long ago. Those of a lake are deleted by its upkeep."""
    for table in pipeline.settings.tables:
        if table.keep_versions is None or pipeline.app.is_lake:
            continue
        try:
            count = pipeline.app.versions.delete_old(pipeline.name, table)
        except FloodmarkError as error:
            _LOG.warning("Could not delete old versions of %s: %s", table.source, error)
            continue
        if count:
            _LOG.info("%s: old versions deleted (keep_versions): %s.", table.source, count)


def _end_alerts(pipeline: Pipeline) -> None:
    name, alerts = pipeline.name, pipeline.alerts
    # A run that fails because a table is left out has published the others; the table has an alert of its own.
    kinds: tuple[str, ...] = (RUN_FAILED, RUN_LATE)
    if pipeline.config.max_lag is None:
        # The lag is no longer measured.
        kinds = (*kinds, LAG)
    if not pipeline.config.patterns:
        # A run with patterns ends those alerts itself, when it has asked the source.
        kinds = (*kinds, TABLE_NOT_TAKEN)
    for kind in kinds:
        alerts.end_alerts(kind, name)
    try:
        resolve_repair_alerts(name, pipeline.ledger, alerts)
        update_quarantined(name, pipeline.ledger, alerts)
        update_waiting(pipeline.settings, pipeline.ledger, alerts)
        update_left_out(pipeline.settings, pipeline.ledger, alerts)
    except FloodmarkError as error:
        _LOG.warning("Could not check which alerts about %s last: %s", name, error)


# --------------------------------------------------------------------------------------------------------------------
# Loads of single tables in parallel to the windows: repairs, and reloads that the operator requests.


def list_waiting(pipeline: Pipeline) -> list[TableName]:
    """Return the tables with an unfinished load in parallel to the windows. It costs one statement in the ledger."""
    pipeline.ledger.ensure_schema()
    opened = pipeline.ledger.list_unfinished(pipeline.name)
    return [window.plan.tables[0].source for window in opened if is_load_lane(window.plan.lane)]


def load_planner(pipeline: Pipeline) -> LoadPlanner:
    """Return the load planner of a pipeline."""
    return LoadPlanner(
        pipeline.settings,
        pipeline.source.snapshots(),
        pipeline.ledger,
        pipeline.warehouse,
        pipeline.drift_watch,
        pipeline.alerts,
    )


def open_reload(pipeline: Pipeline, table: str, where: str | None) -> OpenResult:
    """Open the reload of a table, or return the unfinished one. Raises from ``core.errors``.

    table: schema.table of the source. where: a condition in T-SQL from the operator; it is checked here.
    """
    name = pipeline.parse_table(table)
    hidden = [each.name for each in pipeline.find_table(table).columns if each.is_hidden] if where else ()
    condition = pipeline.source.parse_condition(where, name, hidden) if where else ""
    return load_planner(pipeline).open_reload(name, condition)


def give_up_load(pipeline: Pipeline, table: str) -> int:
    """Drop the unfinished load of a table, with the alerts about it. Return its window. Raises from ``core.errors``."""
    window_id = load_planner(pipeline).give_up(pipeline.parse_table(table))
    pipeline.alerts.end_alerts(LOAD_RUN_FAILED, pipeline.name)
    return window_id


def end_load(pipeline: Pipeline, window_id: int) -> WindowPlan:
    """End the alerts about the table and about failed loads after its window has been published. Return its plan."""
    plan = pipeline.ledger.read_window(window_id).plan
    end_repair(plan, pipeline.alerts)
    end_left_out(plan, pipeline.alerts)
    update_waiting(pipeline.settings, pipeline.ledger, pipeline.alerts)
    pipeline.alerts.end_alerts(LOAD_RUN_FAILED, pipeline.name)
    return plan


def is_loading(pipeline: Pipeline, plan: WindowPlan) -> bool:
    """Return whether a window of the plan's lane is unfinished."""
    unfinished = pipeline.ledger.list_unfinished(plan.pipeline)
    return any(opened.plan.lane == plan.lane for opened in unfinished)
