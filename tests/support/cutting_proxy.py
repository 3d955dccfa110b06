"""A way between a client and a server that is cut while data flows: for what happens when a network goes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

_CHUNK_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of no seconds: close sends RST, as a fallen host's way does."""


@dataclass
class CuttingProxy:
    """Cuts each connection that has carried ``cut_after`` bytes in one direction.

    port: where it listens, on 127.0.0.1. cuts: how many connections it has cut.
    """

    server_port: int
    cut_after: int
    cuts: int = 0
    port: int = field(init=False)
    _listener: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
            except OSError:
                return
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        carried = 0
        with contextlib.suppress(OSError):
            while carried < self.cut_after and (chunk := source.recv(_CHUNK_BYTES)):
                target.sendall(chunk)
                carried += len(chunk)
        cut = carried >= self.cut_after
        self.cuts += cut
        with contextlib.suppress(OSError):
            if cut:
                source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            target.shutdown(socket.SHUT_RDWR)
            source.shutdown(socket.SHUT_RDWR)
        source.close()


@contextlib.contextmanager
def cutting_proxy(server_port: int, cut_after: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(server_port, cut_after)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
