"""Alerts about the capture job of a source, raised by its own DAG and by the pipelines."""

from __future__ import annotations

from floodmark.core.alert import Alert
from floodmark.core.source.capture_status import PlannedStop

STOP_ENDED = "capture_stop_ended"
NOT_RUNNING = "capture_not_running"
NOT_ALIVE = "capture_not_alive"
LAGGING = "capture_lagging"


def stop_ended(source: str, stop: PlannedStop, guard: str) -> Alert:
    """Return the alert that a planned stop is not kept; one per planned stop."""
    return Alert(
        kind=STOP_ENDED,
        subject=source,
        what=f"The capture job is running although {stop} has begun: {guard}.",
        means="Capture loads the source in hours that were to be free of it. No change is lost.",
        do="Give the log more space or back it up more often, or plan shorter stops; see sources."
        f"{source}.capture in pipelines.yaml.",
        event_key=f"{STOP_ENDED}:{source}:{stop.since.isoformat()}",
        where=f"source {source}",
    )


def not_running(source: str, why: str) -> Alert:
    """Return the alert that the job is required and could not be started."""
    return Alert(
        kind=NOT_RUNNING,
        subject=source,
        what=f"The capture job is not running: {why}",
        means="Changes are not captured and wait in the source's log, which grows; the warehouse gets no new rows.",
        do="Check the job's history and whether SQL Server Agent is running, then run the DAG again to start the job.",
        event_key=f"{NOT_RUNNING}:{source}",
        where=f"source {source}",
    )


def not_alive(source: str, words: str) -> Alert:
    """Return the alert that the job is running and captures nothing."""
    return Alert(
        kind=NOT_ALIVE,
        subject=source,
        what=words,
        means="Changes are not captured, or late; the source's log is held, and the warehouse falls behind.",
        do="Check sys.dm_cdc_errors and the job's history. A very large transaction is captured as a whole: then wait.",
        event_key=f"{NOT_ALIVE}:{source}",
        where=f"source {source}",
    )


def capture_lagging(pipeline: str, cause: str) -> Alert:
    """Return the alert that the job is running, and a pipeline has had nothing to read for too long."""
    return Alert(
        kind=LAGGING,
        subject=pipeline,
        what=f"Runs found nothing to read, and ended as skipped: {cause}",
        means="An idle source makes an entry every five minutes, so nothing is captured: the warehouse gets no new "
        "rows, while every run seems fine. No change is lost as long as the source's log has space.",
        do="Check sys.dm_cdc_errors and sys.dm_cdc_log_scan_sessions. A very large transaction is captured as a whole: "
        "then wait.",
        event_key=f"{LAGGING}:{pipeline}",
        where=f"pipeline {pipeline}",
    )
