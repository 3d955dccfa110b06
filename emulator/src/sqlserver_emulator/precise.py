"""Dates and times with seven digits of a second, as ticks of 100 ns: Python's own types have six.

In Python a value of datetime2(7) is a ``PreciseDatetime`` and one of time(7) a ``PreciseTime``. Python's
arithmetic on them loses the digit, so what moves or rounds a value works on ticks.
"""

from __future__ import annotations

import datetime
from typing import Final, SupportsIndex

TICKS_PER_SECOND: Final = 10_000_000
MINUTE_TICKS: Final = 60 * TICKS_PER_SECOND
DAY_TICKS: Final = 86_400 * TICKS_PER_SECOND
DIGITS: Final = 7
UNITS: Final = (10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1)
"""Ticks of the last digit, by the number of digits."""
_YEAR_1: Final = datetime.datetime(1, 1, 1)


class PreciseDatetime(datetime.datetime):
    """A date and time with a seventh digit of its second."""

    digit: int = 0
    """The seventh digit."""

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.digit == getattr(other, "digit", 0)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        """Return the text with all seven digits."""
        text = super().isoformat(sep, "seconds")
        return f"{text[:19]}.{self.microsecond:06}{self.digit}{text[19:]}"

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        return datetime_of, (ticks(self), self.tzinfo)


class PreciseTime(datetime.time):
    """A time of day with a seventh digit of its second."""

    digit: int = 0
    """The seventh digit."""

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.digit == getattr(other, "digit", 0)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def isoformat(self, timespec: str = "auto") -> str:
        """Return the text with all seven digits."""
        return f"{super().isoformat('seconds')}.{self.microsecond:06}{self.digit}"

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        return time_of, (time_ticks(self),)


def ticks(value: datetime.datetime) -> int:
    """Return the ticks since year 1, of the local time where the value has an offset."""
    return (value.toordinal() - 1) * DAY_TICKS + time_ticks(value)


def time_ticks(value: datetime.datetime | datetime.time) -> int:
    """Return the ticks since midnight."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * TICKS_PER_SECOND + value.microsecond * 10 + int(getattr(value, "digit", 0))


def datetime_of(count: int, zone: datetime.tzinfo | None = None) -> PreciseDatetime:
    """Return the date and time of so many ticks since year 1. Raises OverflowError beyond year 9999."""
    moment = _YEAR_1 + datetime.timedelta(microseconds=count // 10)
    precise = PreciseDatetime(
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond, zone
    )
    precise.digit = count % 10
    return precise


def time_of(count: int) -> PreciseTime:
    """Return the time of day of so many ticks since midnight."""
    seconds, fraction = divmod(count, TICKS_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    precise = PreciseTime(hour, minute, second, fraction // 10)
    precise.digit = fraction % 10
    return precise


def coarse_datetime(count: int) -> datetime.datetime:
    """Return the date and time without the seventh digit."""
    return _YEAR_1 + datetime.timedelta(microseconds=count // 10)


def coarse_time(count: int) -> datetime.time:
    """Return the time of day without the seventh digit."""
    return coarse_datetime(count).time()


def rounded(count: int, scale: int) -> int:
    """Round ticks to the digits of a declared type, half a unit upwards."""
    unit = UNITS[scale]
    return (count + unit // 2) // unit * unit
