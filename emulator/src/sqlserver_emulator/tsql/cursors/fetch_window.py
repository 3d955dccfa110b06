"""The arithmetic of rowsets: where a fetch of a server cursor lands, as SQLFetchScroll and sp_cursorfetch have it.

Pure. Rows count from 1; a window that starts at 0 is before the first row, another after the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class FetchType(IntEnum):
    """``@fetchtype``. PRIOR_WHOLE is shortened at the first row, where PRIOR is moved to it."""

    FIRST = 0x0001
    NEXT = 0x0002
    PRIOR = 0x0004
    LAST = 0x0008
    ABSOLUTE = 0x0010
    RELATIVE = 0x0020
    REFRESH = 0x0080
    INFO = 0x0100
    PRIOR_WHOLE = 0x0200


FORWARD: Final = (FetchType.NEXT, FetchType.REFRESH, FetchType.INFO)
"""The fetches that a forward-only cursor allows."""


@dataclass(frozen=True, slots=True)
class Window:
    """The rows fetched last: ``size`` of them were asked for, beginning with ``start``."""

    start: int = 0
    size: int = 0

    def moved(self, fetch: FetchType, row: int, size: int, count: int) -> Window:
        """Return the window after a fetch of ``size`` rows out of ``count``. ``row``: of ABSOLUTE and RELATIVE."""
        if fetch is FetchType.REFRESH:
            return self
        if fetch is FetchType.PRIOR_WHOLE:
            start = max(self.start - size, 1) if self.start > 1 else 0
            # Shortened: the rows before the window are fewer than were asked for.
            return Window(start, min(size, self.start - 1) if start else size)
        return Window(max(0, min(self._start(fetch, row, size, count), count + 1)), size)

    def _start(self, fetch: FetchType, row: int, size: int, count: int) -> int:
        match fetch:
            case FetchType.FIRST:
                return 1 if size else 0
            case FetchType.LAST:
                return max(count - size + 1, 1) if size else count + 1
            case FetchType.NEXT:
                return self.start + self.size if self.start else 1
            case FetchType.PRIOR:
                return self._back(size, count) if self.start > 1 else 0
            case FetchType.ABSOLUTE:
                return _absolute(row, size, count)
            case _:
                return self._relative(row, size, count)

    def _back(self, by: int, count: int) -> int:
        """Return the place so many rows back, but not before the first one."""
        return max(min(self.start, count + 1) - by, 1)

    def _relative(self, row: int, size: int, count: int) -> int:
        # SQLFetchScroll: from outside the result a relative fetch towards it counts like an absolute one.
        if (not self.start and row > 0) or (self.start > count and row < 0):
            return _absolute(row, size, count)
        start = self.start + row
        if start < 1:
            # SQLFetchScroll: a rowset that would begin before the first row begins with it if its size allows the step.
            return 1 if self.start > 1 and -row <= size else 0
        return start

    def rows_of(self, count: int) -> slice:
        """Return the rows of a list that are inside."""
        return slice(self.start - 1, min(self.start - 1 + self.size, count)) if 1 <= self.start <= count else slice(0)

    def position(self, count: int) -> int:
        """Return the position that INFO reports: -1 after the last row."""
        return -1 if self.start > count else self.start


def _absolute(row: int, size: int, count: int) -> int:
    if row >= 0:
        return row
    if -row <= count:
        return count + 1 + row
    return 1 if -row <= size else 0
