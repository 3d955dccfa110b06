"""The readable secondary: a second address of the same databases, which shows them as they are or as they were.

It keeps no copy: its sessions read at a snapshot of the one PostgreSQL. ``hold`` lets it lag behind from now on, as a
replica does whose redo has stopped; ``release`` lets it catch up. A session keeps the state that it began with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import psycopg

from sqlserver_emulator.external_logins import ExternalLogins
from sqlserver_emulator.release import Release
from sqlserver_emulator.session import Session


class OpensReadOnly(Protocol):
    """The part of the engine that is used."""

    def __call__(
        self,
        *,
        login: str,
        password: str | None,
        database: str,
        application: str,
        encrypted: bool,
        snapshot: Callable[[], str],
    ) -> Session: ...


class Secondary:
    """Implements ``session.SessionFactory`` for the secondary's own address."""

    read_only_route = None
    """It leads nowhere else."""

    def __init__(
        self, conninfo: str, open_session: OpensReadOnly, release: Release, external_logins: ExternalLogins
    ) -> None:
        self.product = release
        self.external_logins = external_logins
        self._conninfo = conninfo
        self._open_session = open_session
        self._lock = threading.Lock()
        self._holder: psycopg.Connection[tuple[object, ...]] | None = None
        self._snapshot = ""

    def open_session(
        self, *, login: str, password: str | None, database: str, application: str, encrypted: bool = False
    ) -> Session:
        """Raises SqlServerError as the engine's does."""
        return self._open_session(
            login=login,
            password=password,
            database=database,
            application=application,
            encrypted=encrypted,
            snapshot=lambda: self._snapshot,
        )

    def hold(self) -> None:
        """Let sessions that begin from now on see what is committed now, until ``release``."""
        with self._lock:
            self._end()
            self._holder = psycopg.connect(self._conninfo)
            # A snapshot can be taken over as long as the transaction that exported it is open.
            self._holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            row = self._holder.execute("SELECT pg_export_snapshot()").fetchone()
            self._snapshot = str(row[0]) if row else ""

    def release(self) -> None:
        """Let sessions that begin from now on see the present state."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        self._snapshot = ""
        if self._holder is not None:
            self._holder.close()
            self._holder = None
