"""Half-open intervals of the log, ``(after_lsn, to_lsn]``: the only shape in which changes and DDL are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.position import Position


@dataclass(frozen=True, slots=True)
class Interval:
    """Everything committed after ``after_lsn`` (excluded) up to ``to_lsn`` (included). Never empty."""

    after_lsn: Position
    to_lsn: Position

    def __post_init__(self) -> None:
        if not self.after_lsn < self.to_lsn:
            raise ValueError(f"an interval must advance: after {self.after_lsn} to {self.to_lsn}")

    @property
    def from_lsn(self) -> Position:
        """The lowest LSN inside, for SQL Server's functions, whose bounds are included."""
        return self.after_lsn.next()

    def __contains__(self, lsn: Position) -> bool:
        return self.after_lsn < lsn <= self.to_lsn

    def covers(self, other: Interval) -> bool:
        """True when all of ``other`` lies inside."""
        return self.after_lsn <= other.after_lsn and other.to_lsn <= self.to_lsn

    def is_followed_by(self, other: Interval) -> bool:
        """True when ``other`` begins exactly where this one ends: nothing between them, nothing twice."""
        return self.to_lsn == other.after_lsn

    def __str__(self) -> str:
        return f"({self.after_lsn}, {self.to_lsn}]"
