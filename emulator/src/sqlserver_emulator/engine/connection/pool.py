"""``ConnectionPool``: connections of sessions that have ended, for those to come.

A new process of PostgreSQL has to read its catalog, so that the first statements of a session take three times as long
as later ones. Clients open a session for a few statements, and many of them.
"""

from __future__ import annotations

import threading

from sqlserver_emulator.engine.connection.pipeline import PipelinedConnection

_MOST_IDLE = 8
"""The connections that are kept for later: as many as clients open at once for a short time."""
_UNLIST = "DELETE FROM emulator.sessions WHERE backend_pid = pg_backend_pid()"


class ConnectionPool:
    """Thread-safe. An idle connection has nothing left of its session but what ``remains``."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._lock = threading.Lock()
        self._idle: list[PipelinedConnection] = []
        self._is_closed = False

    def take(self) -> PipelinedConnection:
        """Return a connection that is as good as new but for what ``remains``. Raises psycopg.OperationalError."""
        while (known := self._pop()) is not None:
            # Its process may have been killed, or the whole server.
            if known.answers():
                return known
            known.close()
        return PipelinedConnection(self._conninfo)

    def give_back(self, connection: PipelinedConnection) -> None:
        """End a session: its transaction is rolled back, its locks are free, and no view shows it."""
        if connection.reset(_UNLIST):
            with self._lock:
                if not self._is_closed and len(self._idle) < _MOST_IDLE:
                    self._idle.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        """Close what is idle. Connections that are given back later are closed, too."""
        with self._lock:
            self._is_closed, idle = True, self._idle
            self._idle = []
        for connection in idle:
            connection.close()

    def _pop(self) -> PipelinedConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None
