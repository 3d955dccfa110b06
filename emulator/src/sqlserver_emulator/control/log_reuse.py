"""Why the log of a database cannot be reused, as far as a client sets it (see ``sql/control.sql``)."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.cdc.scan.capture import HELD_LOG_LOCK
from sqlserver_emulator.clock import Fetch

FULL_LOG_LOCK: Final = 0x46554C4C
"""First key of the advisory locks, held shared, that say "this database's log is full"."""


class FullLogs:
    """``fetch``: a connection that lives as long as the server."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def fill(self, database_id: int) -> None:
        # Two locks: one holds the log back, the other says that it is full.
        for lock in (HELD_LOG_LOCK, FULL_LOG_LOCK):
            self._fetch("SELECT pg_advisory_lock_shared($1::int, $2::int)", (lock, database_id))

    def free(self, database_id: int) -> None:
        for lock in (HELD_LOG_LOCK, FULL_LOG_LOCK):
            self._fetch("SELECT pg_advisory_unlock_shared($1::int, $2::int)", (lock, database_id))
