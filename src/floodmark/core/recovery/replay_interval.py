"""Which interval of the log a replay means: two LSNs, or two times of the source's clock, both included.

The merge proves itself against overlap, so that an interval may be wider than asked for, and never narrower. Times of
the source are local and without a zone: an hour that its clock repeats, or a clock that was set back, makes them go
back while LSNs rise. The first entry not before the beginning and the last one not after the end cover everything that
was committed in between, if the beginning is moved back, and the end forth, by what the clock is set back near them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from floodmark.core.errors import ConfigError, WindowExpiredError
from floodmark.core.interval import Interval
from floodmark.core.lsn import Lsn

_SECOND = timedelta(seconds=1)
_UNKNOWN_ZONE = timedelta(minutes=61)
"""How far the clock may have been from today's offset: daylight saving is an hour, the offset is read to a minute."""


@dataclass(frozen=True, slots=True)
class LocalSpan:
    """earliest: nothing from the moment on was written at an earlier local time; latest: nothing up to it at a later
    one. They are the same where the time zone is known and the clock is not set back near the moment."""

    earliest: datetime
    latest: datetime


@dataclass(frozen=True, slots=True)
class MappedTimes:
    """What the log says of two local times. first_lsn: of the first entry not before the beginning; last_lsn: of the
    last one not after the end; None where there is none. reaches_before: whether an entry lies before the beginning.
    oldest_at, newest_at: of the oldest and the newest entry, None while the log is empty."""

    first_lsn: Lsn | None
    last_lsn: Lsn | None
    reaches_before: bool
    oldest_at: datetime | None
    newest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NoInterval:
    """There is nothing to replay; the reason is a sentence."""

    reason: str


def local_span(at_utc: datetime, local: LocalSpan | None, offset_minutes: int) -> LocalSpan:
    """at_utc: without a zone. local: what the server's own time zone makes of it, None where it cannot tell.

    offset_minutes: of the server's clock today.
    """
    if local is not None:
        return local
    today = at_utc + timedelta(minutes=offset_minutes)
    return LocalSpan(today - _UNKNOWN_ZONE, today + _UNKNOWN_ZONE)


def covering_times(begin: LocalSpan, end: LocalSpan) -> tuple[datetime, datetime]:
    """In whole seconds, which datetime holds exactly, and so wide that nothing in between is missed."""
    from_at = begin.earliest.replace(microsecond=0)
    to_at = end.latest.replace(microsecond=0)
    return from_at, to_at if to_at == end.latest else to_at + _SECOND


def interval_of(pipeline: str, from_at: datetime, to_at: datetime, found: MappedTimes) -> Interval | NoInterval:
    """Raises WindowExpiredError when the log does not reach back so far, ConfigError for times in the wrong order."""
    asked = f"from {from_at} to {to_at} (the source's clock)"
    if to_at < from_at:
        raise ConfigError("replay", f"the time {asked} ends before it begins.")
    if not found.reaches_before:
        oldest = f"at {found.oldest_at:%Y-%m-%d %H:%M:%S}" if found.oldest_at else "nowhere: it is empty"
        raise WindowExpiredError(
            pipeline, f"expired: the interval {asked} begins before the log of captured changes does, {oldest}.",
            "What came before was cleaned up or never captured: choose a later beginning, or load the tables anew.",
        )  # fmt: skip
    if found.first_lsn is None:
        reached = f" to {found.newest_at:%Y-%m-%d %H:%M:%S}" if found.newest_at else ""
        return NoInterval(
            f"capture has not come to the time {asked}, only{reached}: what was committed then is not known yet, and "
            "the normal runs bring it."
        )
    if found.last_lsn is None or found.first_lsn > found.last_lsn:
        return NoInterval(f"nothing was committed {asked}.")
    return Interval(found.first_lsn.previous(), found.last_lsn)


def parse_bounds(from_lsn: str, to_lsn: str) -> Interval:
    """From a person's own words, both included. Raises ConfigError."""
    try:
        first, last = Lsn.parse(from_lsn), Lsn.parse(to_lsn)
    except ValueError as error:
        raise ConfigError("replay", f"{error}.") from None
    if last < first:
        raise ConfigError("replay", f"the interval from {first} to {last} ends before it begins.")
    try:
        return Interval(first.previous(), last)
    except ValueError:
        raise ConfigError("replay", f"there is no LSN below {first}: begin at a later one.") from None
