"""The listener: accepts clients, gives each a thread, watches over all of them, and ends them."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
from types import TracebackType

from sqlserver_emulator.server.connection import ClientConnection
from sqlserver_emulator.server.handshake import TlsContexts
from sqlserver_emulator.server.limits import Capacity, Limits
from sqlserver_emulator.session import SessionFactory

_LOG = logging.getLogger(__name__)
# Clients that come while the engine starts wait in this queue.
_BACKLOG = 128
# An attention is noticed after this time at the latest, while no data is being sent.
_WATCH_SECONDS = 0.02
_STOP_SECONDS = 10.0
_STACK_BYTES = 64 << 20
_RECURSION = 10_000
"""Long chains of AND, + or UNION ALL are deep trees: so deep, and with a stack that holds it."""


def listen(host: str, port: int) -> socket.socket:
    """Take the port (0: a free one) before the engine starts; clients that come early wait. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


class EmulatorServer:
    """Serves clients of ``listener`` between ``start`` and ``stop``, or as a context manager; owns the listener."""

    def __init__(
        self, factory: SessionFactory, contexts: TlsContexts, listener: socket.socket, limits: Limits | None = None
    ) -> None:
        self._factory = factory
        self._capacity = Capacity(limits or Limits())
        self._contexts = contexts
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        self._stopping = threading.Event()
        self._client_left_or_came = threading.Condition()
        self._clients: dict[ClientConnection, threading.Thread] = {}
        self._threads = [
            threading.Thread(target=self._accept, name="accept", daemon=True),
            threading.Thread(target=self._watch, name="watch", daemon=True),
        ]

    def start(self) -> None:
        # Before any thread starts: the size holds for threads that are created later.
        threading.stack_size(_STACK_BYTES)
        sys.setrecursionlimit(max(_RECURSION, sys.getrecursionlimit()))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Take no new client, end the others, wait for their threads."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        with self._client_left_or_came:
            # A copy: the clients' threads remove themselves from the dictionary.
            clients = dict(self._clients)
            self._client_left_or_came.notify_all()
        for client in clients:
            client.shut_down()
        for thread in (*self._threads, *clients.values()):
            if thread.is_alive():
                # A thread that hangs must not keep the process: threads are daemons.
                thread.join(_STOP_SECONDS)

    def __enter__(self) -> EmulatorServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, address = self._listener.accept()
            except OSError as error:
                if not self._stopping.is_set():
                    # Out of file descriptors, or a client that left before it was accepted: the others go on.
                    _LOG.warning("a client could not be accepted: %s", error)
                    self._stopping.wait(_WATCH_SECONDS)
                continue
            self._begin(client, f"{address[0]}:{address[1]}")

    def _begin(self, client: socket.socket, peer: str) -> None:
        connection = ClientConnection(client, peer, self._factory, self._contexts, self._capacity)
        thread = threading.Thread(target=self._run, args=(connection,), name=peer, daemon=True)
        most = self._capacity.limits.clients
        # Counting and adding happen under one lock, or two clients could take the last place.
        with self._client_left_or_came:
            is_one_too_many = len(self._clients) >= most
            if self._stopping.is_set() or is_one_too_many:
                client.close()
            else:
                self._clients[connection] = thread
                self._client_left_or_came.notify_all()
                # Started under the lock: ``stop`` must find either no thread or one that runs.
                self._start(thread, connection)
        if is_one_too_many:
            _LOG.warning("%s: closed: %d clients are connected already", peer, most)

    def _start(self, thread: threading.Thread, connection: ClientConnection) -> None:
        try:
            thread.start()
        except RuntimeError as error:  # the system gives no more threads: this client loses, the others go on
            _LOG.warning("%s: closed: %s", thread.name, error)
            del self._clients[connection]
            connection.shut_down()

    def _run(self, connection: ClientConnection) -> None:
        try:
            connection.run()
        finally:
            # Whatever ended the connection, its place becomes free.
            with self._client_left_or_came:
                self._clients.pop(connection, None)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            with self._client_left_or_came:
                # Without clients there is nothing to watch: the thread sleeps until one comes.
                self._client_left_or_came.wait_for(lambda: self._clients or self._stopping.is_set())
                clients = list(self._clients)
            # Outside the lock: watching one client may wait for its session's cancel.
            for connection in clients:
                try:
                    connection.watch()
                except Exception:  # noqa: BLE001 - the edge of the thread: one session's fault must not blind the rest
                    _LOG.exception("watching a client failed")
            self._stopping.wait(_WATCH_SECONDS)
