"""CDC's own connections to the emulator's PostgreSQL, for jobs and slots, which no client's session serves.

Statements use $1..$n like those of ``EngineSession.fetch_all``, so that code can serve both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

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


def server_conninfo(run: Run) -> str:
    """Return how to reach the server behind ``run`` on another connection: by its unix socket, as the superuser."""
    ((folder, port, database, user),) = run(
        "SELECT split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'),"
        " current_database()::text, session_user::text",
        (),
    )
    return psycopg.conninfo.make_conninfo(host=str(folder), port=str(port), dbname=str(database), user=str(user))
