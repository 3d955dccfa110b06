"""The engine's own connection, with all rights: reads the committed catalog for every session, listens for changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import psycopg

from sqlserver_emulator.engine.connection.notifications import Notifications
from sqlserver_emulator.engine.connection.pipeline import PipelinedConnection
from sqlserver_emulator.engine.values import bind
from sqlserver_emulator.engine.values.rows import Row, RowReader, read_own_types

_CHANNEL = "emulator_catalog"


class OwnerConnection:
    """Autocommit; may be used by several threads, one at a time."""

    def __init__(self, conninfo: str) -> None:
        self._pipeline = PipelinedConnection(conninfo)
        self._lock = threading.Lock()
        self.own_types = read_own_types(self._pipeline.psycopg)
        self._rows = RowReader(self._pipeline.psycopg, self.own_types)

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        with self._lock:
            return self._rows.rows(self._pipeline.run(sql, bind.to_parameters(parameters)))

    def close(self) -> None:
        with self._lock:
            self._pipeline.close()


class CatalogListener:
    """Calls ``on_change`` when another process changed the catalog (and called ``emulator.notify_catalog_changed``)."""

    def __init__(self, conninfo: str, on_change: Callable[[], None]) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._on_change = on_change
        self._ended = threading.Event()
        self._connection.execute(f"LISTEN {_CHANNEL}".encode())
        self._notifications = Notifications(self._connection)
        self._thread = threading.Thread(target=self._listen, name="catalog-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._notifications.wake()
        self._thread.join()
        self._notifications.close()
        self._connection.close()

    def _listen(self) -> None:
        try:
            while not self._ended.is_set():
                if self._notifications.wait():
                    self._on_change()
        except psycopg.OperationalError:
            # The server is gone: sessions will say so, there is nothing to listen to.
            self._ended.set()
