"""One run of a pipeline: open the next window, load, check and advance it, and end the alerts whose cause has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.app.alerts import reported_failure
from floodmark.app.drift import drift_watch
from floodmark.app.measure import measure_run
from floodmark.app.upkeep import current_stop
from floodmark.core.alerts.heartbeat import HEARTBEAT_MISSING
from floodmark.core.alerts.runs import LAG, RUN_FAILED, RUN_LATE
from floodmark.core.errors import FloodmarkError
from floodmark.core.window.lane import is_replay_lane
from floodmark.core.window.plan import WindowState
from floodmark.sync.recovery.gaps import find_stopped, resolve_repair_alerts, update_left_out
from floodmark.sync.recovery.quarantine import update_quarantined
from floodmark.sync.run.advance import advance_window
from floodmark.sync.run.check import check_window
from floodmark.sync.run.open_window import open_window
from floodmark.sync.upkeep.heartbeat import keep_heartbeat
from floodmark.sync.window.opened import OpenResult
from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.window.published import AdvanceResult
    from floodmark.sync.ports.ledger import OpenedWindow
    from floodmark.wiring.pipelines import PipelineWiring

_LOG = logging.getLogger(__name__)
DELETED_AT_ONCE = 200
StartLoad = Callable[["PipelineWiring", int], None]
"""A function that runs the load job of a window and returns when it has ended. Raises the error of the job."""


def run_pipeline(app: AppContext, pipeline: str, start_load: StartLoad, show: Callable[[AdvanceResult], None]) -> str:
    """Run one window without a scheduler. Return why there was nothing to read, "" after a window was published.

    show: receives the result of the window. Raises from ``core.errors``, after the alert about a failed run; also while
    a table of the pipeline is left out, after the other tables have been published.
    """
    with reported_failure(app, pipeline):
        opened = open_next(app, pipeline)
        if opened.window_id is None:
            close_run(app, pipeline)
            return opened.reason
        wiring = wire(app.config, pipeline)
        result = finish_window(wiring, opened, start_load)
        show(result)
        stopped = stopped_table(wiring)
        close_run(app, pipeline, result, stopped=stopped is not None)
        if stopped:
            raise stopped
    return ""


def open_next(app: AppContext, pipeline: str) -> OpenResult:
    """Return the unfinished window, or a new one.

    Raises ConfigError for a pipeline that is not in the configuration, and what ``open_window`` raises.
    """
    wiring = wire(app.config, pipeline)
    with wiring.ledger.kept_sessions():
        return open_window(
            wiring.settings,
            wiring.source.snapshots(),
            wiring.ledger.windows(),
            drift_watch(app, app.config.pipeline(pipeline).source),
            current_stop(app, pipeline, datetime.now(UTC)),
            alerts=app.alerts(),
        )


def finish_window(wiring: PipelineWiring, opened: OpenResult, start_load: StartLoad) -> AdvanceResult:
    """Load, check and advance an opened window."""
    assert opened.window_id is not None  # noqa: S101  (the caller has opened one)
    if opened.state is WindowState.PLANNED:
        start_load(wiring, opened.window_id)
    check_run(wiring, opened.window_id)
    return publish_run(wiring, opened.window_id)


def check_run(wiring: PipelineWiring, window_id: int) -> None:
    """Check a merged window. Raises DataQualityError."""
    check_window(window_id, wiring.ledger.windows(), wiring.quality())


def publish_run(wiring: PipelineWiring, window_id: int) -> AdvanceResult:
    """Publish a checked window and move its watermarks. Raises WatermarkConflictError."""
    with wiring.ledger.kept_sessions():
        return advance_window(window_id, wiring.ledger.windows(), wiring.warehouse.windows())


def stopped_table(wiring: PipelineWiring) -> FloodmarkError | None:
    """Return the error about the tables that are left out of windows; None where there is none."""
    return find_stopped(wiring.settings, wiring.ledger.windows())


def is_merged(wiring: PipelineWiring, window_id: int) -> bool:
    """Return whether the ledger says that a window has been merged."""
    return wiring.ledger.windows().read_window(window_id).state is not WindowState.PLANNED


def is_outdated(wiring: PipelineWiring, opened: OpenedWindow) -> bool:
    """Return whether a window was published before, and a watermark that it moved has moved on since then."""
    plan = opened.plan
    if opened.state is not WindowState.ADVANCED or is_replay_lane(plan.lane):
        return False
    states = wiring.ledger.windows().read_tables(plan.pipeline)
    found = [states[table.source].watermark for table in plan.tables if table.source in states]
    return any(watermark is not None and watermark > plan.to_lsn for watermark in found)


def close_run(app: AppContext, pipeline: str, result: AdvanceResult | None = None, *, stopped: bool = False) -> None:
    """End the alerts whose cause has ended, raise those about tables that are left out, delete old windows, and measure
    the lag.

    stopped: a table is left out of windows, so that the run will fail.
    """
    with wire(app.config, pipeline).ledger.kept_sessions():
        _end_alerts(app, pipeline, stopped=stopped)
        _keep_heartbeat(app, pipeline)
        _delete_old_windows(app, pipeline)
        measure_run(app, pipeline, result)


def _keep_heartbeat(app: AppContext, pipeline: str) -> None:
    alerts, settings = app.alerts(), app.config.heartbeat_of(pipeline)
    if app.config.source_of(pipeline).stream_conn_id is None:
        return
    if settings is None:
        alerts.end_alerts(HEARTBEAT_MISSING, pipeline)
        return
    wiring = wire(app.config, pipeline)
    keep_heartbeat(pipeline, settings, beats=wiring.source.beats(), ledger=wiring.ledger.windows(), alerts=alerts)


def _delete_old_windows(app: AppContext, pipeline: str) -> None:
    """Delete some of the oldest windows: the first run after a change of the setting is not much longer than others."""
    keep_seconds = app.config.pipeline(pipeline).keep_windows.total_seconds()
    try:
        ledger = wire(app.config, pipeline).ledger.windows()
        count = ledger.delete_old_windows(pipeline, keep_seconds, DELETED_AT_ONCE)
    except FloodmarkError as error:
        _LOG.warning("Could not delete old windows of %s from the ledger: %s", pipeline, error)
        return
    if count:
        _LOG.info("Old windows deleted from the ledger (keep_windows): %s.", count)


def _end_alerts(app: AppContext, pipeline: str, *, stopped: bool) -> None:
    alerts = app.alerts()
    kinds = (RUN_LATE,) if stopped else (RUN_FAILED, RUN_LATE)
    if app.config.pipeline(pipeline).max_lag is None:
        # The lag is no longer measured.
        kinds = (*kinds, LAG)
    for kind in kinds:
        alerts.end_alerts(kind, pipeline)
    try:
        wiring = wire(app.config, pipeline)
        resolve_repair_alerts(pipeline, wiring.ledger.windows(), alerts)
        update_quarantined(pipeline, wiring.ledger.windows(), alerts)
        update_left_out(wiring.settings, wiring.ledger.windows(), alerts)
    except FloodmarkError as error:
        _LOG.warning("Could not check which alerts about %s last: %s", pipeline, error)
