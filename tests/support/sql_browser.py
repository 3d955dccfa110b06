"""A responder on loopback in place of SQL Server Browser."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from floodmark.sources.sqlserver import server_name


def answer_of(text: str) -> bytes:
    """Return the SVR_RESP with a text."""
    return b"\x05" + len(text).to_bytes(2, "little") + text.encode("latin-1")


@contextmanager
def browser(monkeypatch: pytest.MonkeyPatch, answer: Callable[[bytes], bytes | None]) -> Iterator[list[bytes]]:
    """Answer in place of port 1434, and yield the requests. answer: None for none."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        monkeypatch.setattr(server_name, "BROWSER_PORT", server.getsockname()[1])

        def respond() -> None:
            while (received := server.recvfrom(100)) and received[0]:
                asked.append(received[0])
                said = answer(received[0])
                if said is not None:
                    server.sendto(said, received[1])

        thread = threading.Thread(target=respond)
        thread.start()
        try:
            yield asked
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", server.getsockname())
            thread.join()
