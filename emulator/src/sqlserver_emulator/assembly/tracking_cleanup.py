"""Change Tracking's automatic cleanup: a thread that wakes every 30 minutes of the emulator's clock."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta

import psycopg

from sqlserver_emulator.clock import EngineClock

_INTERVAL = timedelta(minutes=30)
_READ_SECONDS = 10.0
"""How often the clock is read at least: the machine's may be set, or the machine may sleep."""
_DATABASES = """
SELECT d.database_id, emulator.expired_version(d.database_id) FROM emulator.change_tracking_databases d
WHERE d.is_on AND d.is_auto_cleanup_on
"""
_TABLES = "SELECT object_id FROM emulator.change_tracking_tables WHERE database_id = %s"
_COMMITS_AT_ONCE = 10_000


class TrackingCleanup:
    """Runs from now until ``close``."""

    def __init__(self, conninfo: str, clock: EngineClock) -> None:
        self._conninfo = conninfo
        self._clock = clock
        self._next = clock.now() + _INTERVAL
        self._ended = False
        self._woken = threading.Event()
        clock.call_when_moved(self._woken.set)
        self._thread = threading.Thread(target=self._run, name="tracking-cleanup", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the cleanup that it is at."""
        self._ended = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            left = (self._next - self._clock.now()).total_seconds()
            self._woken.wait(min(max(0.0, left), _READ_SECONDS))
            # Before the reads: what comes after them wakes the next round.
            self._woken.clear()
            if self._ended:
                return
            now = self._clock.now()
            # The next one is never further away than that: the clock may have been set back.
            if now < self._next <= now + _INTERVAL:
                continue
            self._next = now + _INTERVAL
            try:
                self._clean()
            except psycopg.Error as error:
                print(f"the cleanup of Change Tracking will try again: {error}", file=sys.stderr, flush=True)

    def _clean(self) -> None:
        """Each table in a transaction of its own; the commit table after all of them."""
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            for database_id, version in connection.execute(_DATABASES).fetchall():
                for (object_id,) in connection.execute(_TABLES, (database_id,)).fetchall():
                    connection.execute("SELECT emulator.clean_tracked_table(%s, %s)", (object_id, version))
                connection.execute("SELECT emulator.clean_commit_table(%s, %s)", (database_id, _COMMITS_AT_ONCE))
