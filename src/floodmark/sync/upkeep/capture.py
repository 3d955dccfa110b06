"""One run of the capture schedule: check the job, bring it to the wanted state, check its liveness, and raise alerts.

Only the early end of a planned stop is recorded between runs, so a run may be missed, killed or repeated. The source
comes first: an unreachable ledger never prevents the start of the job.
"""

from __future__ import annotations

import logging
from datetime import datetime

from floodmark.core.alerts.capture import NOT_ALIVE, NOT_RUNNING, STOP_ENDED, not_alive, not_running, stop_ended
from floodmark.core.errors import CaptureStoppedError, FloodmarkError, SourcePermissionError, WarehouseUnavailableError
from floodmark.core.source.capture_status import CaptureJobStatus, PlannedStop
from floodmark.core.source.liveness import Heartbeat, Liveness, judge_liveness
from floodmark.core.upkeep.capture_job import Action, CaptureSettings, Step, decide_step, on_replica
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports.capture import CaptureControl, StopLedger

_LOG = logging.getLogger(__name__)


def keep_capture(
    source: str,
    settings: CaptureSettings,
    stop: PlannedStop | None,
    now: datetime,
    *,
    control: CaptureControl,
    ledger: StopLedger,
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
    source: str, settings: CaptureSettings, step: Step, control: CaptureControl, *, wanted: bool
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


def _read_ended(source: str, stop: PlannedStop | None, ledger: StopLedger) -> str:
    if stop is None:
        return ""
    try:
        return ledger.read_ended_stop(source, stop.since)
    except WarehouseUnavailableError as error:
        _LOG.warning("Could not read whether %s was ended early (%s): only the source decides.", stop, error)
        return ""


def _take(source: str, step: Step, status: CaptureJobStatus, control: CaptureControl, alerts: Alerts) -> None:
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


def _start(source: str, control: CaptureControl, alerts: Alerts) -> None:
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
