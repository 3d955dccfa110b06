"""The upkeep of a source: its capture schedule, its lag, its retention."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.core.alerts import (
    CHANGE_TABLES_LARGE,
    EXHAUSTED,
    LAGGING,
    LOW,
    NOT_ALIVE,
    NOT_RUNNING,
    STOP_ENDED,
    capture_lagging,
    change_tables_large,
    not_alive,
    not_running,
    retention_exhausted,
    retention_low,
    stop_ended,
)
from floodmark.core.capture import CaptureJobStatus, PlannedStop
from floodmark.core.errors import (
    CaptureStoppedError,
    CdcNotEnabledError,
    FloodmarkError,
    SourcePermissionError,
    WarehouseUnavailableError,
)
from floodmark.core.schema import TableName
from floodmark.core.snapshot import Validity, Verdict
from floodmark.core.upkeep import (
    Action,
    CaptureSettings,
    ChangeTableSize,
    Mark,
    RetentionSettings,
    RetentionStatus,
    RetentionStep,
    Step,
    decide_retention,
    decide_step,
    largest_first,
    on_replica,
    table_sizes,
)
from floodmark.core.verdicts import Heartbeat, Liveness, judge_liveness
from floodmark.sync.alerts import Alerts

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresUpkeepLedger
    from floodmark.postgres.ledger.status import PostgresMarkLedger
    from floodmark.sources.cdc.operations import SqlServerJobs, SqlServerRetention

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# One run of the capture schedule: check the job, bring it to the wanted state, check its liveness, and raise alerts.
#
# Only the early end of a planned stop is recorded between runs, so a run may be missed, killed or repeated. The source
# comes first: an unreachable ledger never prevents the start of the job.


def keep_capture(
    source: str,
    settings: CaptureSettings,
    stop: PlannedStop | None,
    now: datetime,
    *,
    control: SqlServerJobs,
    ledger: PostgresUpkeepLedger,
    alerts: Alerts,
) -> Step:
    """Bring the job to the wanted state. Return what was done and why. stop: the planned stop that is current at
    ``now``."""
    status = control.read_capture()
    if status.is_replica:
        raise on_replica(source, "capture")
    try:
        _require_job(source, status)
    except FloodmarkError as error:
        # During a planned stop a retry is enough; a job that should run and does not is an incident.
        if stop is None and not status.running:
            alerts.raise_alert(not_running(source, str(error)))
        raise
    step = decide_step(status, settings, stop, now, _read_ended(source, stop, ledger))
    _LOG.info("Source %s, capture job: %s: %s", source, step.action.value, step.reason)
    try:
        _take(source, step, status, control, alerts)
    finally:
        # The end of the stop is recorded also where the start fails.
        if stop is not None and step.guard:
            alerts.raise_alert(stop_ended(source, stop, step.guard))
            ledger.record_ended_stop(source, stop.since, step.guard)
    alerts.end_alerts(NOT_RUNNING, source)
    if stop is None:
        alerts.end_alerts(STOP_ENDED, source)
    heartbeat = _beat(source, settings, step, control, wanted=stop is None or bool(step.guard))
    liveness = judge_liveness(status, settings.lag_limit_seconds, heartbeat)
    _report_liveness(source, step, liveness, alerts, wanted=stop is None)
    return step


def _beat(
    source: str, settings: CaptureSettings, step: Step, control: SqlServerJobs, *, wanted: bool
) -> Heartbeat | None:
    """Return the state of the earlier beats, and write the next one.

    While the job is not wanted, or was just started, earlier beats do not count.
    """
    if settings.heartbeat is None:
        return None
    try:
        found = control.read_heartbeat(settings.heartbeat)
        control.beat(settings.heartbeat, afresh=found.has_arrived or not wanted or step.action is not Action.NOTHING)
    except FloodmarkError as error:
        _LOG.warning("Source %s has no heartbeat: %s", source, error)
        return None
    return found


def _require_job(source: str, status: CaptureJobStatus) -> None:
    if not status.has_agent:
        return
    if status.job is None:
        raise CaptureStoppedError(
            source,
            f"database {status.database} has no capture job.",
            "Create it: sys.sp_cdc_add_job @job_type = N'capture'. (Where replication reads the log, there is none.)",
        )
    if status.running is None:
        raise SourcePermissionError(
            source,
            "the login may not see whether the capture job runs.",
            "Grant it SELECT on msdb.dbo.cdc_jobs and msdb.dbo.sysjobactivity.",
        )


def _read_ended(source: str, stop: PlannedStop | None, ledger: PostgresUpkeepLedger) -> str:
    if stop is None:
        return ""
    try:
        return ledger.read_ended_stop(source, stop.since)
    except WarehouseUnavailableError as error:
        _LOG.warning("Could not read whether %s was ended early (%s): only the source decides.", stop, error)
        return ""


def _take(source: str, step: Step, status: CaptureJobStatus, control: SqlServerJobs, alerts: Alerts) -> None:
    """Carry out a step.

    Parameters are changed after the stop and before the start, so that a running job uses the recorded ones. The start
    is done even where the other steps fail: their error fails the run, and does not prevent the job from running.
    """
    try:
        if step.action in (Action.STOP, Action.RESTART):
            control.stop_capture()
        if step.changes and step.action is not Action.WAIT:
            control.change_capture(step.changes)
    finally:
        if step.action in (Action.START, Action.RESTART):
            _start(source, control, alerts)
    if status.error and step.action is Action.START:
        _LOG.warning("Newest error of a log scan: %s", status.error)


def _start(source: str, control: SqlServerJobs, alerts: Alerts) -> None:
    try:
        control.start_capture()
    except FloodmarkError as error:
        alerts.raise_alert(not_running(source, str(error)))
        raise
    alerts.end_alerts(NOT_RUNNING, source)


def _report_liveness(source: str, step: Step, liveness: Liveness, alerts: Alerts, *, wanted: bool) -> None:
    """Raise or end the alert about the liveness of the job. A job that was just started has time until the next
    run."""
    if step.action is not Action.NOTHING or not (wanted or step.guard):
        if not wanted:
            alerts.end_alerts(NOT_ALIVE, source)
        return
    _LOG.log(logging.WARNING if liveness.alive is False else logging.INFO, "Source %s: %s", source, liveness)
    if liveness.alive is False:
        alerts.raise_alert(not_alive(source, str(liveness)))
    elif liveness.alive:
        alerts.end_alerts(NOT_ALIVE, source)


# --------------------------------------------------------------------------------------------------------------------
# A capture job that runs and captures nothing: each run of a pipeline then finds nothing to read, and none fails.
#
# The run itself reports it, whether or not the job is managed (``sync.upkeep``).


def report_lag(pipeline: str, validities: Sequence[Validity], alerts: Alerts) -> None:
    """Raise one alert while the capture job lags, and end it in the first run that finds progress in the log."""
    lagging = [validity for validity in validities if validity.verdict is Verdict.CAPTURE_LAGGING]
    if lagging:
        alerts.raise_alert(capture_lagging(pipeline, lagging[0].cause))
    else:
        alerts.end_alerts(LAGGING, pipeline)


# --------------------------------------------------------------------------------------------------------------------
# One run of the retention guard: read the status, bring the cleanup job to the wanted state, and raise alerts.
#
# Nothing is recorded between runs, so a run may be missed, killed or repeated. Where the ledger cannot be reached, the
# run fails before it changes anything: without the watermarks it is not known what may be deleted.


_THRESHOLD = 5000
"""The server's own default."""


def keep_retention(
    source: str,
    settings: RetentionSettings,
    readers: Mapping[str, Collection[TableName]],
    *,
    control: SqlServerRetention,
    ledger: PostgresMarkLedger,
    alerts: Alerts,
) -> RetentionStep:
    """Bring the retention to the wanted value. Return what was done and why.

    readers: the tables by pipeline, as configured. A table that was removed from the configuration holds nothing back.
    """
    marks = [mark for mark in ledger.read_marks(readers) if mark.table in readers[mark.pipeline]]
    # Of a position that was imported, the ledger may have no time.
    marks = [mark if mark.at else replace(mark, at=control.read_time_at(mark.position)) for mark in marks]
    status = control.read_retention()
    if status.is_replica:
        raise on_replica(source, "retention")
    if status.retention_minutes is None:
        raise CdcNotEnabledError(
            source,
            "the database has no cleanup job, so that its changes are kept forever.",
            "Create it: sys.sp_cdc_add_job @job_type = N'cleanup'.",
        )
    for size in largest_first(status.sizes):
        _LOG.info("Source %s, change table of %s: %s", source, size.instance, size)
    for pipeline, tables in readers.items():
        if sizes := table_sizes(tables, status.sizes):
            ledger.record_sizes(pipeline, sizes)
    _report_sizes(source, settings.change_table_limit_bytes, status.sizes, alerts)
    step = decide_retention(status, settings, marks)
    _LOG.info("Source %s: %s", source, step.forecast or "no table has a watermark that could be lost")
    _LOG.info("Source %s: %s", source, step.reason)
    _change(step, control)
    _report(source, step, alerts)
    if settings.margin_seconds is not None and marks:
        _clean(source, settings, marks, status, control)
    return step


def _change(step: RetentionStep, control: SqlServerRetention) -> None:
    wanted = {"retention": step.retention_minutes, "threshold": step.threshold}
    changes = {name: value for name, value in wanted.items() if value is not None}
    if changes:
        control.change_cleanup(changes)
        changed = ", ".join(
            f"{name} {value}{' minutes' if name == 'retention' else ''}" for name, value in changes.items()
        )
        _LOG.info("Changed (sys.sp_cdc_change_job): %s", changed)


def _report(source: str, step: RetentionStep, alerts: Alerts) -> None:
    if step.low:
        alerts.raise_alert(retention_low(source, step))
    else:
        alerts.end_alerts(LOW, source, step.reason[:1].upper() + step.reason[1:])
    if step.exhausted:
        alerts.raise_alert(retention_exhausted(source, step))
    else:
        alerts.end_alerts(EXHAUSTED, source)


def _report_sizes(source: str, limit_bytes: int | None, sizes: Sequence[ChangeTableSize], alerts: Alerts) -> None:
    large = [
        size
        for size in sizes
        if limit_bytes is not None and size.size_bytes is not None and size.size_bytes > limit_bytes
    ]
    if limit_bytes is not None and large:
        alerts.raise_alert(change_tables_large(source, large, limit_bytes))
    else:
        alerts.end_alerts(CHANGE_TABLES_LARGE, source)


def _clean(
    source: str,
    settings: RetentionSettings,
    marks: Sequence[Mark],
    status: RetentionStatus,
    control: SqlServerRetention,
) -> None:
    """Clean up the instances that our pipelines read, none beyond the slowest watermark of all."""
    assert settings.margin_seconds is not None  # noqa: S101  (checked by keep_retention)
    slowest = min(mark.position for mark in marks)
    low_water_mark = control.read_low_water_mark(slowest, settings.margin_seconds)
    if low_water_mark is None:
        _LOG.info("Source %s: no change is older than the slowest watermark %s by the margin.", source, slowest)
        return
    threshold = settings.threshold or status.threshold or _THRESHOLD
    read = {mark.instance.casefold() for mark in marks}
    for size in status.sizes:
        if size.instance.casefold() in read and size.low_end is not None and size.low_end < low_water_mark:
            done = control.clean_instance(size.instance, low_water_mark, threshold)
            rest = "" if done else "; some rows were locked and are left for the next run"
            _LOG.info("Change table of %s: cleaned up to %s%s.", size.instance, low_water_mark, rest)
