"""A stream to which the server no longer writes: each run then finds nothing to read, and none fails.

So the end of each run checks that the last beat has arrived, and writes the next one.
"""

from __future__ import annotations

import logging

from floodmark.core.alerts.heartbeat import HEARTBEAT_MISSING, heartbeat_missing
from floodmark.core.errors import FloodmarkError
from floodmark.core.source.beats import HeartbeatSettings, judge_beat
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports.beats import Beats
from floodmark.sync.ports.ledger import Ledger

_LOG = logging.getLogger(__name__)


def keep_heartbeat(pipeline: str, settings: HeartbeatSettings, *, beats: Beats, ledger: Ledger, alerts: Alerts) -> None:
    """Raise or end the alert about the heartbeat, and write the next beat where it is due.

    A heartbeat that cannot be read or written never fails the run. Nothing is judged before the first load of the
    table, and while it is left out of windows, of which there is another alert.
    """
    try:
        # The source first: the moments between the two queries then count as waiting, never as an arrival.
        beat = beats.read_beat(settings.table)
        arrived_seconds = ledger.seconds_since_change(pipeline, settings.table)
        is_left_out = any(each.table == settings.table for each in ledger.list_stopped(pipeline))
        if arrived_seconds is None or is_left_out:
            return
        pulse = judge_beat(settings, beat, arrived_seconds)
        if pulse.is_late:
            alerts.raise_alert(heartbeat_missing(pipeline, settings, beat.number, pulse.waited_seconds))
        elif pulse.has_arrived:
            alerts.end_alerts(HEARTBEAT_MISSING, pipeline)
        if pulse.is_due:
            beats.write_beat(settings.table)
    except FloodmarkError as error:
        _LOG.warning("Pipeline %s has no heartbeat: %s", pipeline, error)
