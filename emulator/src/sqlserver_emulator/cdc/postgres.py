"""CDC's own connections to the emulator's PostgreSQL, for jobs and slots, which no client's session serves.

Statements use $1..$n like those of ``EngineSession.fetch_all``, so that code can serve both.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from sqlserver_emulator.cdc.metadata import Run

SqlConnection = psycopg.Connection[tuple[Any, ...]]


def connect(conninfo: str, *, autocommit: bool = True, application: str = "sqlserver_emulator cdc") -> SqlConnection:
    """Return a connection whose ``execute`` takes $1..$n."""
    # RawCursor passes $1..$n to PostgreSQL as they are.
    return psycopg.connect(
        conninfo, autocommit=autocommit, application_name=application, cursor_factory=psycopg.RawCursor
    )


def runner(connection: SqlConnection) -> Run:
    """Return ``connection`` as a Run: one statement, all its rows."""

    def run(sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        cursor = connection.execute(sql.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    return run


class SpareConnections:
    """Connections for one scan by hand after the other. Thread-safe.

    A new process of PostgreSQL has to read its catalog, which takes longer than the scan.
    """

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self._lock = threading.Lock()
        self._idle: list[SqlConnection] = []
        self._is_closed = False

    @contextmanager
    def lend(self) -> Iterator[SqlConnection]:
        """Yield a connection without autocommit, for a use that takes back what it sets in the session."""
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close what is idle. Connections that are lent are closed when they come back."""
        with self._lock:
            self._is_closed, idle = True, self._idle
            self._idle = []
        for connection in idle:
            connection.close()

    def _take(self) -> SqlConnection:
        while (known := self._pop()) is not None:
            try:
                known.execute("SELECT 1")
                known.rollback()
            except psycopg.OperationalError:
                known.close()
            else:
                return known
        return connect(self.conninfo, autocommit=False)

    def _give_back(self, connection: SqlConnection) -> None:
        with self._lock:
            # Otherwise it is broken, or its use ended in the middle of a transaction.
            if connection.info.transaction_status == TransactionStatus.IDLE and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _pop(self) -> SqlConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None


def server_conninfo(run: Run) -> str:
    """Return how to reach the server behind ``run`` on another connection: by its unix socket, as the superuser."""
    ((folder, port, database, user),) = run(
        "SELECT split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'),"
        " current_database()::text, session_user::text",
        (),
    )
    return psycopg.conninfo.make_conninfo(host=str(folder), port=str(port), dbname=str(database), user=str(user))
