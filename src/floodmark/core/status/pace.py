"""The pace of a read that takes long: rows a second, and the time that is left."""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE, _HOUR = 60, 3600
_DAY = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class Pace:
    """The rows that were read since a moment. Rows of an earlier attempt do not count."""

    rows: int
    seconds: float

    @property
    def rows_per_second(self) -> float | None:
        """Return the rate; None before the first row."""
        return self.rows / self.seconds if self.rows > 0 and self.seconds > 0 else None

    def describe(self, rows_left: float | None = None) -> str:
        """Return the rate, and the time for ``rows_left`` at this rate, for the end of a sentence; "" before the first
        row."""
        rate = self.rows_per_second
        if rate is None:
            return ""
        left = f", about {describe_seconds(rows_left / rate)} left" if rows_left else ""
        return f", {rate:,.0f} rows/s{left}"


def describe_seconds(seconds: float) -> str:
    """Return a duration in its largest unit, such as ``45 s``, ``12 min`` or ``3.5 h``."""
    if seconds < _MINUTE:
        return f"{max(1, round(seconds))} s"
    if seconds < _HOUR:
        return f"{round(seconds / _MINUTE)} min"
    return f"{seconds / _HOUR:.1f} h" if seconds < _DAY else f"{seconds / _DAY:.1f} days"
