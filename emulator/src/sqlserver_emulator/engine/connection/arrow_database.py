"""The connections on which large results are read: all of them share what the ADBC driver has to know of PostgreSQL."""

from __future__ import annotations

import threading

import adbc_driver_manager
import adbc_driver_postgresql


class ArrowDatabase:
    """Connections of the ADBC driver, for all threads.

    The driver reads the whole catalogue of types before it connects, 0.15 s for an empty database: once here, and not
    for each session. It holds no connection of its own.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lock = threading.Lock()
        self._database: adbc_driver_manager.AdbcDatabase | None = None

    def connect(self) -> adbc_driver_manager.AdbcConnection:
        """Open a connection that commits each statement."""
        # The driver counts the connections of a database without a lock.
        with self._lock:
            if self._database is None:
                self._database = adbc_driver_postgresql.connect(self._uri)
            return adbc_driver_manager.AdbcConnection(self._database)

    def disconnect(self, connection: adbc_driver_manager.AdbcConnection) -> None:
        """Close a connection of ``connect``."""
        with self._lock:
            connection.close()
