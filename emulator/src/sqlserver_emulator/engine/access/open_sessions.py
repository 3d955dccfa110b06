"""The sessions that are open: their numbers, and the database that each of them is in."""

from __future__ import annotations

import threading
from typing import Final

_FIRST_SESSION_ID: Final = 51
_LAST_SESSION_ID: Final = 32767


class OpenSessions:
    """Gives sessions their @@SPID: the lowest number from 51 upwards that no open session has. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._databases: dict[int, str] = {}

    def take(self) -> int:
        """Return the number of a new session, which is in no database yet."""
        with self._lock:
            number = next(n for n in range(_FIRST_SESSION_ID, _LAST_SESSION_ID) if n not in self._databases)
            self._databases[number] = ""
            return number

    def give_back(self, number: int) -> None:
        """Free the number of a session that has ended."""
        with self._lock:
            self._databases.pop(number, None)

    def enter(self, number: int, database: str) -> None:
        """Note the database that a session is in from now on; '' for none."""
        with self._lock:
            if number in self._databases:
                self._databases[number] = database

    def others_in(self, database: str, number: int) -> list[int]:
        """Return the numbers of the sessions in a database, but for this one."""
        with self._lock:
            return [n for n, name in self._databases.items() if name == database and n != number]
