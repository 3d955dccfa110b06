"""Dates and times of events: they have seven digits of a second, which ``datetime`` cannot hold.

Each value is read into its parts and written from them. What a column of a batch cannot hold is cut off, as the other
kinds of source on SQL Server do it. Where a column is text, all digits that the type declares are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

TICKS_PER_SECOND = 10_000_000
TICK_DIGITS = 7
_TICKS_PER_MICROSECOND, _TICKS_PER_MILLISECOND = 10, 10_000
_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_TIME = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,7}))?)?"
_MOMENT = re.compile(rf"(?:{_DATE})?(?:[T ]?{_TIME}(?: ?(Z|[+-]\d{{2}}:\d{{2}}))?)?", re.ASCII)
_MOST_OFFSET_MINUTES = 14 * 60


@dataclass(frozen=True, slots=True)
class Moment:
    """The parts of a date, a time of day or both."""

    day: date | None
    ticks: int
    """Tenths of a microsecond since midnight."""
    offset_minutes: int | None = None
    """East of UTC; None for a type without an offset."""

    def to_datetime(self) -> datetime:
        """Return the local date and time. Digits below a microsecond are cut off."""
        return datetime.combine(self.day or date.min, self.to_time())

    def to_time(self) -> time:
        """Return the time of day. Digits below a microsecond are cut off."""
        microseconds = self.ticks // _TICKS_PER_MICROSECOND
        seconds, fraction = divmod(microseconds, 1_000_000)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)

    def to_utc(self) -> Moment:
        """Return the same moment with offset zero. Raises OverflowError beyond the years 1 to 9999."""
        offset = timedelta(minutes=self.offset_minutes or 0)
        whole = datetime.combine(self.day or date.min, time.min)
        seconds, fraction = divmod(self.ticks, TICKS_PER_SECOND)
        shifted = whole + timedelta(seconds=seconds) - offset
        rest = timedelta(hours=shifted.hour, minutes=shifted.minute, seconds=shifted.second)
        return Moment(shifted.date(), int(rest.total_seconds()) * TICKS_PER_SECOND + fraction, 0)

    def format_time(self, digits: int) -> str:
        """Return the time of day with this number of digits of a second."""
        seconds, fraction = divmod(self.ticks, TICKS_PER_SECOND)
        shown = f".{fraction:07}"[: digits + 1] if digits else ""
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{shown}"

    def format(self, digits: int) -> str:
        """Return date and time, and the offset where there is one, as CONVERT does with style 121."""
        shown = f"{self.day or date.min} {self.format_time(digits)}"
        if self.offset_minutes is None:
            return shown
        hours, minutes = divmod(abs(self.offset_minutes), 60)
        return f"{shown} {'-' if self.offset_minutes < 0 else '+'}{hours:02}:{minutes:02}"


def parse_moment(text: str, digits: int) -> Moment:
    """Return the parts of a text.

    digits: the digits of a second that the type keeps. Raises ValueError for a text of another form, with more digits
    that are not zero, or with a part out of range.
    """
    match = _MOMENT.fullmatch(text)
    if not match or not text:
        raise ValueError
    year, month, day, hours, minutes, seconds, fraction, offset = match.groups()
    found = date(int(year), int(month), int(day)) if year else None
    ticks = int((fraction or "").ljust(TICK_DIGITS, "0"))
    if ticks % 10 ** (TICK_DIGITS - digits):
        raise ValueError
    at = time(int(hours or 0), int(minutes or 0), int(seconds or 0))
    ticks += ((at.hour * 60 + at.minute) * 60 + at.second) * TICKS_PER_SECOND
    return Moment(found, ticks, _parse_offset(offset) if offset else None)


def moment_of(value: datetime | time | date) -> Moment:
    """Return the parts of a value."""
    if isinstance(value, datetime):
        offset = value.utcoffset()
        minutes = None if offset is None else int(offset.total_seconds()) // 60
        return Moment(value.date(), _ticks(value.time()), minutes)
    if isinstance(value, time):
        return Moment(None, _ticks(value))
    return Moment(value, 0)


def round_to_milliseconds(moment: Moment) -> Moment:
    """Return a ``datetime`` of the server as it prints it. Its ticks are thirds of 10 ms, with any number of digits."""
    ticks = round(moment.ticks / _TICKS_PER_MILLISECOND) * _TICKS_PER_MILLISECOND
    return Moment(moment.day, min(ticks, 24 * 3600 * TICKS_PER_SECOND - _TICKS_PER_MILLISECOND))


def aware(moment: Moment) -> datetime:
    """Return a moment as a datetime in UTC. Raises OverflowError beyond the years 1 to 9999."""
    return moment.to_utc().to_datetime().replace(tzinfo=UTC)


def _ticks(at: time) -> int:
    seconds = (at.hour * 60 + at.minute) * 60 + at.second
    return seconds * TICKS_PER_SECOND + at.microsecond * _TICKS_PER_MICROSECOND


def _parse_offset(text: str) -> int:
    if text == "Z":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[4:6])
    if minutes > _MOST_OFFSET_MINUTES or int(text[4:6]) > 59:
        raise ValueError
    return -minutes if text[0] == "-" else minutes
