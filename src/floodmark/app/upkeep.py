"""The upkeep of a source: its capture job with the planned stops, and its retention."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from floodmark.config.stops import planned_stop
from floodmark.core.alerts.runs import CAPTURE_RUN_FAILED, RETENTION_RUN_FAILED
from floodmark.core.errors import FloodmarkError
from floodmark.sync.upkeep import capture, retention
from floodmark.wiring.pipelines import wire_ledger, wire_source

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.config.retention import RetentionConfig
    from floodmark.config.upkeep import CaptureConfig
    from floodmark.core.source.capture_status import PlannedStop

_START_TIME = timedelta(minutes=10)
"""The time after the end of a planned stop in which the DAG starts the job."""


def keep_capture(app: AppContext, source: str, kept: CaptureConfig, now: datetime) -> str:
    """Bring the capture job to the state that the schedule requires now. Return what was done and why."""
    stop, alerts = planned_stop(kept, now), app.alerts()
    step = capture.keep_capture(
        source,
        kept.settings(),
        stop,
        now,
        control=wire_source(app.config, source, kept.conn_id).jobs(),
        ledger=wire_ledger(app.config).stops(),
        alerts=alerts,
    )
    alerts.end_alerts(CAPTURE_RUN_FAILED, source)
    return f"{step.action.value}: {step.reason}"


def keep_retention(app: AppContext, source: str, kept: RetentionConfig) -> str:
    """Bring the retention to the value that is wanted now. Return the forecast and what was done, in one sentence."""
    readers = {
        name: frozenset(table.source for table in app.config.pipeline(name).tables) for name in app.pipelines_of(source)
    }
    alerts = app.alerts()
    step = retention.keep_retention(
        source,
        kept.settings(),
        readers,
        control=wire_source(app.config, source, kept.conn_id).retention(),
        ledger=wire_ledger(app.config).marks(),
        alerts=alerts,
    )
    alerts.end_alerts(RETENTION_RUN_FAILED, source)
    return f"{step.forecast or 'no table has a watermark'}: {step.reason}"


def current_stop(app: AppContext, pipeline: str, now: datetime) -> PlannedStop | None:
    """Return the current planned stop of the capture job.

    None also for a stop that was ended early: after that, a job that does not run is an incident.
    """
    stop = scheduled_stop(app, pipeline, now)
    if stop is None:
        return None
    ledger = wire_ledger(app.config).stops()
    return None if ledger.read_ended_stop(app.config.pipeline(pipeline).source, stop.since) else stop


def likely_stop(app: AppContext, pipeline: str, now: datetime) -> PlannedStop | None:
    """Return ``current_stop``, or ``scheduled_stop`` where the ledger cannot be read."""
    try:
        return current_stop(app, pipeline, now)
    except FloodmarkError:
        return scheduled_stop(app, pipeline, now)


def scheduled_stop(app: AppContext, pipeline: str, now: datetime) -> PlannedStop | None:
    """Return the stop according to the configuration alone, whether or not it was ended early."""
    kept = app.config.source_of(pipeline).capture
    if kept is None:
        return None
    return planned_stop(kept, now) or planned_stop(kept, now - _START_TIME)
