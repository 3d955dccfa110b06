"""A pooler in front of a PostgreSQL without passwords: each transaction, or each session, gets a server process."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.postgres.session import WarehouseConnection

_NO_TLS_CODES = (80877103, 80877104)
"""The codes with which a client asks for TLS and for GSSAPI before it begins."""


@dataclass
class Pooler:
    """``by_transaction``: a session has a server process for a transaction alone."""

    to: WarehouseConnection
    by_transaction: bool
    idle: list[socket.socket] = field(default_factory=list)
    ends: list[socket.socket] = field(default_factory=list)

    @contextlib.contextmanager
    def serve(self) -> Iterator[WarehouseConnection]:
        """Listen, and give the connection through the pooler."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=self._accept, args=[listener], daemon=True).start()
            port = listener.getsockname()[1]
            yield WarehouseConnection("127.0.0.1", port, self.to.database, self.to.user, sslmode="disable")
            listener.shutdown(socket.SHUT_RDWR)
            for end in self.ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.ends.append(client)
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        with contextlib.suppress(OSError, EOFError):
            while struct.unpack("!I", (start := _startup(client))[4:8])[0] in _NO_TLS_CODES:
                client.sendall(b"N")
            del start
            # Accepted, a process that is none of the server's, ready.
            client.sendall(b"R\0\0\0\x08\0\0\0\0" + b"K" + struct.pack("!III", 12, 1, 1) + b"Z\0\0\0\x05I")
            while (message := _message(client))[:1] != b"X":
                server = server or self._take()
                server.sendall(message)
                if message[:1] in b"QS":
                    status = _answer(server, client)
                    if status == b"I" and self.by_transaction:
                        self.idle.append(server)
                        server = None

    def _take(self) -> socket.socket:
        with contextlib.suppress(IndexError):
            return self.idle.pop()
        server = socket.socket(socket.AF_UNIX)
        self.ends.append(server)
        server.connect(str(Path(self.to.host, f".s.PGSQL.{self.to.port}")))
        named = f"user\0{self.to.user}\0database\0{self.to.database}\0\0".encode()
        server.sendall(struct.pack("!II", 8 + len(named), 196608) + named)
        _answer(server, None)
        return server


def _answer(server: socket.socket, client: socket.socket | None) -> bytes:
    """Pass the server's messages on until it is ready, and return the status of its transaction."""
    while True:
        message = _message(server)
        if client is not None:
            client.sendall(message)
        if message[:1] == b"Z":
            return message[5:6]


def _message(end: socket.socket) -> bytes:
    kind = _exactly(end, 1)
    return kind + _startup(end)


def _startup(end: socket.socket) -> bytes:
    length = _exactly(end, 4)
    return length + _exactly(end, struct.unpack("!I", length)[0] - 4)


def _exactly(end: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = end.recv(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found
