"""Planned stops of the capture job, and the firings of a schedule.

Firings are computed on the wall clock of the schedule's zone. One that the change to summer time skips counts as so
much later; one in the hour that is repeated in autumn counts once, the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import croniter  # type: ignore[import-untyped]

from floodmark.config.upkeep import CaptureConfig
from floodmark.core.source.capture_status import PlannedStop

# No zone's clock is ever moved by more at once.
_CLOCK_CHANGE = timedelta(hours=3)


def planned_stop(capture: CaptureConfig, now: datetime) -> PlannedStop | None:
    """Return the stop that is in effect at ``now`` (with a zone), None where none is; of several, the last to end."""
    zone = ZoneInfo(capture.time_zone)
    found = []
    for window in capture.stops:
        stopped = _last_wall(window.stop, zone, now)
        since = _moment(stopped, zone)
        # The start that follows on the wall clock ends a stop. Where the change to summer time has moved the stop
        # beyond that start, there is no stop.
        ended = _moment(croniter(window.start, stopped).get_next(datetime), zone)
        if since > last_firing(window.start, zone, now) and ended > now:
            until = next_firing(window.start, zone, now)
            found.append((until, since))
    # Moments of one zone are compared by its wall clock, which may go back. These are in UTC.
    return PlannedStop(max(found)[1].astimezone(zone), max(found)[0].astimezone(zone)) if found else None


def last_firing(cron: str, zone: ZoneInfo, now: datetime) -> datetime:
    """Return the last firing that is not after ``now``, in UTC."""
    return _moment(_last_wall(cron, zone, now), zone)


def _last_wall(cron: str, zone: ZoneInfo, now: datetime) -> datetime:
    """Return the last firing on the wall clock; a skipped one has the time that the schedule names."""
    begin = now.astimezone(zone).replace(tzinfo=None) + _CLOCK_CHANGE
    firings: Iterator[datetime] = croniter(cron, begin).all_prev(datetime)
    return next(firing for firing in firings if _moment(firing, zone) <= now)


def next_firing(cron: str, zone: ZoneInfo, now: datetime) -> datetime:
    """Return the first firing after ``now``, in UTC."""
    begin = now.astimezone(zone).replace(tzinfo=None) - _CLOCK_CHANGE
    firings: Iterator[datetime] = croniter(cron, begin).all_next(datetime)
    return next(at for firing in firings if (at := _moment(firing, zone)) > now)


def _moment(wall: datetime, zone: ZoneInfo) -> datetime:
    return wall.replace(tzinfo=zone).astimezone(UTC)
