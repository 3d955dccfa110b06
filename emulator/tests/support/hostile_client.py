"""Means of attacks: a server with its memory and its log, a client that vanishes, and the proof that others go on."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emulator_process import Emulator
from raw_client import LOGIN, PLAIN_PRELOGIN, PRELOGIN, RawClient, login_message

PATIENCE_SECONDS = 20.0
_BYTES_A_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Target:
    server: Emulator
    log: Path | None = None

    @property
    def port(self) -> int:
        return self.server.port

    def log_text(self) -> str:
        return "" if self.log is None else self.log.read_text("utf-8", "replace")

    def client(self) -> RawClient:
        """Logged in, in plain text."""
        with contextlib.ExitStack() as closing:
            client = closing.enter_context(RawClient(self.port))
            client.log_in(self.server.password)
            closing.pop_all()
        return client

    def serves_others(self) -> bool:
        with self.client() as client:
            return client.batch("SET NOCOUNT ON").startswith(b"\xfd")

    @contextlib.contextmanager
    def memory_grows_by_less_than(self, megabytes: int) -> Iterator[None]:
        """Resident memory of the server process, without PostgreSQL's."""
        before = self.server.process.memory_info().rss
        yield
        grown = self.server.process.memory_info().rss - before
        assert grown < megabytes * _BYTES_A_MEGABYTE, f"{grown / _BYTES_A_MEGABYTE:.0f} MB more than before"


def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        pause.wait(0.02)


def cut_off(client: RawClient) -> None:
    """Close with RST: what is on its way is lost, and no end of stream is sent."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


def answer_to(client: RawClient, data: bytes) -> bytes:
    """Send, say no more, and read until the server closes. Raises TimeoutError when it does not."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        client.socket.sendall(data)
        client.socket.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionError):
        while part := client.socket.recv(1 << 16):
            received += part
    return bytes(received)


def begin_login(client: RawClient) -> None:
    client.send(PRELOGIN, PLAIN_PRELOGIN)
    client.read()


def send_login(client: RawClient, password: str) -> None:
    client.send(LOGIN, login_message("sa", password, 4096))
