"""Waiting for notifications of PostgreSQL without polling: ``Notifications`` sleeps until one comes, or until woken."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Any

import psycopg


class Notifications:
    """The notifications of ``connection``, which has to LISTEN and is closed by its owner.

    One thread waits; any thread may wake it. psycopg's own wait reads the clock ten times a second, and nothing but its
    timeout ends it.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        # Not `select`, which takes no descriptor above 1023.
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def wait(self, seconds: float | None = None) -> bool:
        """Return at the next notification, call of ``wake``, or end of the time; whether there was a notification.

        Raises psycopg.OperationalError when the server is gone.
        """
        # Statements on the connection take notifications from the socket too: psycopg has kept these.
        if self._take():
            return True
        self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        return self._take()

    def wake(self) -> None:
        """End the wait of now, or the next one. Does nothing after ``close``."""
        # A full buffer holds enough to wake it.
        with self._lock, contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Close what ``wake`` uses."""
        with self._lock:
            self._woken.close()
            self._waker.close()

    def _take(self) -> bool:
        return len(list(self._connection.notifies(timeout=0))) > 0
