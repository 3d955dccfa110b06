"""The emulator's clock: PostgreSQL's, shifted. ``EngineClock`` moves it, ``LoggedClock`` knows what it said when.

The shift is kept in ``emulator.clock_changes`` and survives a restart. Client sessions have it in a setting of their
PostgreSQL connection (see ``control/sql/control.sql``); everything else reads the table.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Protocol

Fetch = Callable[[str, Sequence[object]], Sequence[tuple[Any, ...]]]

_SETTING = "emulator.clock_shift"
_EARLIEST, _LATEST = datetime(1900, 1, 1), datetime(9000, 1, 1)
"""datetime's range leaves room on both sides for what is computed from the time."""


class ClockRangeError(ValueError):
    """The clock cannot show that time."""


class SessionContext(Protocol):
    """The part of a client session's PostgreSQL connection that is used."""

    def set_context(self, name: str, value: str) -> None: ...


class EngineClock:
    """The clock of one running emulator; any thread may use it."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[SessionContext] = weakref.WeakSet()
        self._when_moved: list[Callable[[], None]] = []
        ((microseconds,),) = fetch(f"SELECT {_microseconds('emulator.stored_clock_shift()')}", ())
        self.shift = timedelta(microseconds=microseconds)

    def now(self) -> datetime:
        """The server's local time, as SYSDATETIME() shows it."""
        return datetime.now() + self.shift

    def follow(self, session: SessionContext) -> None:
        """From now on the session gets notice when the clock is moved."""
        with self._lock:
            self._sessions.add(session)
            session.set_context(_SETTING, self._setting())

    def call_when_moved(self, call: Callable[[], None]) -> None:
        """From now on ``call`` is made after the clock was moved: for who sleeps until an hour of it."""
        with self._lock:
            self._when_moved.append(call)

    def set(self, now: datetime) -> None:
        """Raises ClockRangeError."""
        self._move("$1::timestamp - clock_timestamp()::timestamp", now, now)

    def advance(self, seconds: float) -> None:
        """Raises ClockRangeError."""
        try:
            reached = self.now() + timedelta(seconds=seconds)
        except OverflowError:
            raise ClockRangeError from None
        self._move("emulator.stored_clock_shift() + make_interval(secs => $1::float8)", seconds, reached)

    def reset(self) -> None:
        if self.shift:
            self._move("$1::interval", "0", self.now())

    def _move(self, shift: str, argument: object, reached: datetime) -> None:
        if not _EARLIEST <= reached < _LATEST:
            raise ClockRangeError
        with self._lock:
            ((microseconds,),) = self._fetch(
                f"INSERT INTO emulator.clock_changes (shift) VALUES ({shift}) "  # noqa: S608 - constants
                f"RETURNING {_microseconds('shift')}",
                (argument,),
            )
            self.shift = timedelta(microseconds=microseconds)
            for session in self._sessions:
                session.set_context(_SETTING, self._setting())
            calls = tuple(self._when_moved)
        for call in calls:
            call()

    def _setting(self) -> str:
        return f"{self.shift // timedelta(microseconds=1)} microseconds"


class LoggedClock:
    """Readings of the clock at moments of the past, for the times of logged commits. Microseconds since 1970.

    Read again whenever a moment is asked for that is newer than the last reading.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._read_at = -1
        self._changed_at: list[int] = []
        self._shifts: list[int] = []
        self.may_go_back = False
        """Whether the clock was ever set back, so that a later commit may show an earlier time."""

    def shown(self, microseconds: int) -> int:
        if microseconds >= self._read_at:
            self._read()
        index = bisect_right(self._changed_at, microseconds) - 1
        return microseconds + (self._shifts[index] if index >= 0 else 0)

    def _read(self) -> None:
        rows = self._fetch(_CHANGES, ())
        self._read_at = rows[-1][0]
        self._changed_at = [changed_at for changed_at, _ in rows[:-1]]
        self._shifts = [shift for _, shift in rows[:-1]]
        self.may_go_back = any(later < earlier for earlier, later in pairwise([0, *self._shifts]))


def _microseconds(interval: str) -> str:
    return f"(extract(epoch FROM {interval}) * 1000000)::bigint"


_CHANGES = f"""
SELECT * FROM (SELECT {_microseconds("changed_at")}, {_microseconds("shift")} FROM emulator.clock_changes
               UNION ALL SELECT {_microseconds("statement_timestamp()")}, NULL) AS c(at, shift)
ORDER BY shift IS NULL, at
"""  # noqa: S608 - constants
