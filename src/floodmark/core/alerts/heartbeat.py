"""The alert about the heartbeat of an event stream."""

from __future__ import annotations

from floodmark.core.alert import Alert
from floodmark.core.durations import format_duration
from floodmark.core.source.beats import HeartbeatSettings

HEARTBEAT_MISSING = "heartbeat_missing"


def heartbeat_missing(pipeline: str, settings: HeartbeatSettings, number: int, waited_seconds: float) -> Alert:
    """Return the alert that a beat has not arrived; one for each pipeline while it lasts."""
    return Alert(
        kind=HEARTBEAT_MISSING,
        subject=pipeline,
        table=settings.table,
        what=f"Beat {number:,}, written {format_duration(waited_seconds)} ago, has not arrived; the limit is"
        f" {format_duration(settings.limit_seconds)} (`heartbeat.limit`).",
        means="The server no longer writes changes to the stream, or late: the warehouse gets no new rows, while every"
        " run seems fine. Changes that the server left out are in no event.",
        do="Check sys.dm_change_feed_errors and sys.dm_change_feed_log_scan_sessions, and whether the table is in its"
        f" stream group: `floodmark doctor {pipeline}`. When beats arrive again, run `floodmark verify {pipeline}`.",
        event_key=f"{HEARTBEAT_MISSING}:{pipeline}",
    )
