"""A run of a pipeline outside of Airflow, with its loads, its measures and its alerts."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.app.upkeep import current_stop, drift_watch, parse_table
from floodmark.core.alert import Alert, build_raised_message
from floodmark.core.alerts import (
    LAG,
    LOAD_RUN_FAILED,
    RUN_FAILED,
    RUN_LATE,
    RunFailure,
    lag,
    run_failed,
)
from floodmark.core.errors import (
    FloodmarkBugError,
    FloodmarkError,
    NotCapturedYetError,
    SourceLoginError,
    SourceUnavailableError,
    WindowBusyError,
)
from floodmark.core.plan import WindowState, is_replay_lane
from floodmark.core.progress import SourceProgress
from floodmark.core.status import measure_tables
from floodmark.core.upkeep import table_sizes
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.open_window import open_window
from floodmark.sync.repair import (
    LoadPlanner,
    end_left_out,
    end_repair,
    find_stopped,
    report_left_out,
    resolve_repair_alerts,
    update_left_out,
    update_quarantined,
)
from floodmark.sync.window import OpenResult
from floodmark.wiring.adapters import wire, wire_channels, wire_ledger

if TYPE_CHECKING:
    from datetime import timedelta

    from floodmark.app.upkeep import AppContext
    from floodmark.core.alert import AlertMessage
    from floodmark.core.plan import AdvanceResult, WindowPlan
    from floodmark.sync.alerts import Channel, OpenAlert
    from floodmark.sync.records import OpenedWindow
    from floodmark.wiring.adapters import PipelineWiring

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The lag of each table after a run: as metrics and, beyond the pipeline's ``max_lag``, as an alert.
#
# The source is queried once more, so this is done only where something receives the result. It never fails the run that
# it follows.


_NOT_MEASURED = (SourceUnavailableError, SourceLoginError, NotCapturedYetError)
"""After these errors the lag is not measured: the source was unreachable a moment ago, or has captured nothing yet."""


@contextmanager
def measured(app: AppContext, pipeline: str) -> Iterator[None]:
    """Measure the lag when the step of a run in the block fails, because the lag then grows.

    The error of the step is raised, whether or not the measurement succeeds.
    """
    try:
        yield
    except _NOT_MEASURED:
        raise
    except FloodmarkError as error:
        try:
            measure_run(app, pipeline)
        finally:
            raise error


def measure_run(app: AppContext, pipeline: str, result: AdvanceResult | None = None) -> None:
    """Measure the tables of a pipeline. result: the window that the run published, if any."""
    max_lag, sending = app.config.pipeline(pipeline).max_lag, app.metrics.are_on()
    try:
        if sending and result is not None:
            app.metrics.send_window(result, wire_ledger(app.config).read_window_seconds(result.window_id))
        if sending or max_lag is not None:
            _measure(app, pipeline, max_lag, sending=sending)
    except FloodmarkError as error:
        _LOG.warning("Could not measure the lag of pipeline %s: %s", pipeline, error)


def _measure(app: AppContext, pipeline: str, max_lag: timedelta | None, *, sending: bool) -> None:
    wiring = wire(app.config, pipeline)
    marks = wiring.ledger.list_table_marks(pipeline)
    # The positions of the log alone: no table is read.
    snapshot = wiring.source.snapshots().read_snapshot(())
    # While such a source is quiet, only its first change after a watermark shows how late a table is.
    watermarks = {mark.watermark for mark in marks if mark.watermark} if snapshot.is_synchronous else ()
    progress = SourceProgress({}, None)
    if sending or watermarks:
        progress = wiring.source.read_progress(watermarks, wiring.ledger.windows().list_marks(pipeline))
    if sizes := table_sizes([mark.table for mark in marks], progress.sizes):
        wiring.ledger.record_sizes(pipeline, sizes)
    measures = measure_tables(marks, snapshot, progress)
    if sending:
        app.metrics.send_measures(pipeline, measures)
    if max_lag is None:
        return
    limit = max_lag.total_seconds()
    late = [each for each in measures if each.lag_seconds is not None and each.lag_seconds > limit]
    if late:
        app.alerts().raise_alert(lag(pipeline, late, limit, snapshot.taken_at))
    else:
        app.alerts().end_alerts(LAG, pipeline)


# --------------------------------------------------------------------------------------------------------------------
# Alerts: a test message for the channels, and the alert about a failed run on the command line.


_PRINTED = "See the output of the command."


def send_test_message(app: AppContext) -> Mapping[str, str]:
    """Send a message to every channel. Return by channel name why it was not accepted, "" where it was."""
    alert = Alert(
        kind="test",
        subject="floodmark",
        what="A test message was sent to every channel.",
        means="This channel works.",
        do="Nothing.",
        event_key="test",
    )
    message = build_raised_message(alert, datetime.now(UTC))
    return {channel.name: _try(channel, message) for channel in wire_channels(app.config)}


def list_open_alerts(app: AppContext) -> Sequence[OpenAlert]:
    """Return the open alerts about the pipelines and sources of the configuration, the oldest first."""
    subjects = {*app.config.pipelines, *app.config.sources}
    return [each for each in wire_ledger(app.config).alerts().list_open() if each.alert.subject in subjects]


def _try(channel: Channel, message: AlertMessage) -> str:
    try:
        channel.send(message)
    except FloodmarkError as error:
        return str(error)
    return ""


@contextmanager
def reported_failure(app: AppContext, pipeline: str) -> Iterator[None]:
    """Raise the alert about a failed run when the block fails; what was raised goes on to the caller.

    It is the same alert that a failed run in Airflow raises. It ends when any run succeeds. Airflow raises it after the
    last retry of a run; a command has no retries. No alert is raised where another run is active, or where there is
    nothing to read yet. Raises ConfigError for a pipeline that is not in the configuration.
    """
    app.config.pipeline(pipeline)
    try:
        yield
    except (NotCapturedYetError, WindowBusyError):
        raise
    except FloodmarkError as error:
        _report(app, pipeline, error)
        raise
    except Exception as error:
        _report(app, pipeline, FloodmarkBugError(pipeline, f"the run ended with {type(error).__name__}.", _PRINTED))
        raise


def _report(app: AppContext, pipeline: str, error: FloodmarkError) -> None:
    alert = run_failed(RUN_FAILED, pipeline, RunFailure.of(error), dag_id="", run_id="", task_id="")
    where = f"pipeline {pipeline}, floodmark run on {socket.gethostname()}"
    app.alerts().raise_alert(replace(alert, where=where, do=error.hint or _PRINTED))
    report_tables(app, pipeline)


def report_tables(app: AppContext, pipeline: str) -> None:
    """Raise the alerts about the tables that are left out, after a run that failed. An error is only logged."""
    try:
        wiring = wire(app.config, pipeline)
        report_left_out(wiring.settings, wiring.ledger.windows(), app.alerts())
    except FloodmarkError as error:
        _LOG.warning("Could not check which tables of %s are left out: %s", pipeline, error)


# --------------------------------------------------------------------------------------------------------------------
# One run of a pipeline: open the next window, load, check and advance it, and end the alerts whose cause has ended.


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
    wiring = wire(app.config, pipeline)
    with wiring.ledger.kept_sessions():
        _end_alerts(app, pipeline, stopped=stopped)
        wiring.source.keep_heartbeat(pipeline, app.config.heartbeat_of(pipeline), wiring.ledger.windows, app.alerts())
        _delete_old_windows(app, pipeline)
        measure_run(app, pipeline, result)


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


# --------------------------------------------------------------------------------------------------------------------
# Loads of single tables in parallel to the windows: repairs, and reloads that the operator requests.


def load_planner(app: AppContext, pipeline: str) -> LoadPlanner:
    """Return the load planner of a pipeline. Raises ConfigError where the pipeline is not in the configuration."""
    wiring = wire(app.config, pipeline)
    return LoadPlanner(
        wiring.settings,
        wiring.source.snapshots(),
        wiring.ledger.windows(),
        wiring.warehouse.windows(),
        drift_watch(app, app.config.pipeline(pipeline).source),
        app.alerts(),
    )


def open_reload(app: AppContext, pipeline: str, table: str, where: str | None) -> OpenResult:
    """Open the reload of a table, or return the unfinished one. Raises from ``core.errors``.

    table: schema.table of the source. where: a condition in T-SQL from the operator; it is checked here.
    """
    name = parse_table(pipeline, table)
    condition = wire(app.config, pipeline).source.parse_condition(where, name) if where else ""
    return load_planner(app, pipeline).open_reload(name, condition)


def give_up_load(app: AppContext, pipeline: str, table: str) -> int:
    """Drop the unfinished load of a table, with the alerts about it. Return its window. Raises from ``core.errors``."""
    window_id = load_planner(app, pipeline).give_up(parse_table(pipeline, table))
    app.alerts().end_alerts(LOAD_RUN_FAILED, pipeline)
    return window_id


def end_load(app: AppContext, pipeline: str, window_id: int) -> WindowPlan:
    """End the alerts about the table and about failed loads after its window has been published. Return its plan."""
    plan = wire(app.config, pipeline).ledger.windows().read_window(window_id).plan
    alerts = app.alerts()
    end_repair(plan, alerts)
    end_left_out(plan, alerts)
    alerts.end_alerts(LOAD_RUN_FAILED, pipeline)
    return plan


def is_loading(wiring: PipelineWiring, plan: WindowPlan) -> bool:
    """Return whether a window of the plan's lane is unfinished."""
    unfinished = wiring.ledger.windows().list_unfinished(plan.pipeline)
    return any(opened.plan.lane == plan.lane for opened in unfinished)
