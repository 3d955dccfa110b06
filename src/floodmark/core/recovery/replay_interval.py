"""The interval of the log that a replay covers: two LSNs, or two times of the source's clock, both included.

The merge tolerates overlap, so that an interval may be wider than asked for, and never narrower. Times of the source
are local and without a zone: an hour that its clock repeats, or a clock that was set back, makes them go back while
LSNs rise. The first entry not before the beginning and the last one not after the end cover everything that was
committed in between, if the beginning is moved back, and the end forward, by what the clock is set back near them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from floodmark.core.errors import ConfigError, WindowExpiredError
from floodmark.core.interval import Interval
from floodmark.core.lsn import Lsn
from floodmark.core.position import Position

_SECOND = timedelta(seconds=1)
_UNKNOWN_ZONE = timedelta(minutes=61)
"""How far the clock may have been from today's offset: daylight saving is an hour, the offset is exact to a minute."""


@dataclass(frozen=True, slots=True)
class LocalSpan:
    """The local times that a moment may have had.

    Both are the same where the time zone is known and the clock is not set back near the moment.
    """

    earliest: datetime
    """No entry from the moment on has an earlier local time."""
    latest: datetime
    """No entry up to the moment has a later local time."""


@dataclass(frozen=True, slots=True)
class MappedTimes:
    """The entries of the log around two local times."""

    first_lsn: Position | None
    """The first entry not before the beginning; None where there is none."""
    last_lsn: Position | None
    """The last entry not after the end; None where there is none."""
    reaches_before: bool
    """Whether an entry is before the beginning."""
    oldest_at: datetime | None
    """The oldest entry; None while the log is empty."""
    newest_at: datetime | None = None
    """The newest entry; None while the log is empty."""


@dataclass(frozen=True, slots=True)
class NoInterval:
    """There is nothing to replay; the reason is a sentence."""

    reason: str


def local_span(at_utc: datetime, local: LocalSpan | None, offset_minutes: int) -> LocalSpan:
    """Return the local times that a moment may have had.

    at_utc: without a zone. local: the span by the server's own time zone, None where that is unknown. offset_minutes:
    of the server's clock today.
    """
    if local is not None:
        return local
    today = at_utc + timedelta(minutes=offset_minutes)
    return LocalSpan(today - _UNKNOWN_ZONE, today + _UNKNOWN_ZONE)


def covering_times(begin: LocalSpan, end: LocalSpan) -> tuple[datetime, datetime]:
    """Return two times between which nothing is missed.

    They are in whole seconds, which datetime holds exactly.
    """
    from_at = begin.earliest.replace(microsecond=0)
    to_at = end.latest.replace(microsecond=0)
    return from_at, to_at if to_at == end.latest else to_at + _SECOND


def interval_of(pipeline: str, from_at: datetime, to_at: datetime, found: MappedTimes) -> Interval | NoInterval:
    """Return the interval of two times.

    Raises WindowExpiredError when the log does not reach back so far, ConfigError for times in the wrong order.
    """
    asked = f"from {from_at} to {to_at} (the source's clock)"
    if to_at < from_at:
        raise ConfigError("replay", f"the time {asked} ends before it begins.")
    if not found.reaches_before:
        oldest = f"at {found.oldest_at:%Y-%m-%d %H:%M:%S}" if found.oldest_at else "which is empty"
        raise WindowExpiredError(
            pipeline,
            f"expired: the interval {asked} begins before the log of captured changes, {oldest}.",
            "Earlier changes were cleaned up or never captured: choose a later beginning, or reload the tables.",
        )
    if found.first_lsn is None:
        reached = f" to {found.newest_at:%Y-%m-%d %H:%M:%S}" if found.newest_at else ""
        return NoInterval(
            f"capture has not reached the time {asked}, only{reached}: its changes are not known yet, and the normal "
            "runs will load them."
        )
    if found.last_lsn is None or found.first_lsn > found.last_lsn:
        return NoInterval(f"nothing was committed {asked}.")
    return Interval(found.first_lsn.previous(), found.last_lsn)


def parse_bounds(from_lsn: str, to_lsn: str) -> Interval:
    """Return the interval of two LSNs in text, both included. Raises ConfigError."""
    try:
        first, last = Lsn.parse(from_lsn), Lsn.parse(to_lsn)
    except ValueError as error:
        raise ConfigError("replay", f"{error}.") from None
    if last < first:
        raise ConfigError("replay", f"the interval from {first} to {last} ends before it begins.")
    try:
        return Interval(first.previous(), last)
    except ValueError:
        raise ConfigError("replay", f"there is no LSN below {first}: choose a later beginning.") from None
