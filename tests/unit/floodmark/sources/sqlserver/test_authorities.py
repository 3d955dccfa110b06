"""Where the driver finds its authorities: for connections in parallel, and never for longer."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from floodmark.sources.sqlserver.driver import _Authorities

LIMIT_SECONDS = 10


@pytest.fixture(autouse=True)
def other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "before.pem")


def test_connections_with_one_file_are_made_in_parallel_and_the_last_one_puts_the_variable_back() -> None:
    authorities, both = _Authorities(), threading.Barrier(2)

    def connect() -> str | None:
        with authorities.trusted("own.pem"):
            both.wait(LIMIT_SECONDS)
            return os.environ.get("SSL_CERT_FILE")

    with ThreadPoolExecutor() as threads:
        seen = [threads.submit(connect) for _ in range(2)]
        assert [each.result(LIMIT_SECONDS) for each in seen] == ["own.pem", "own.pem"]
    assert os.environ["SSL_CERT_FILE"] == "before.pem"


def test_connection_with_another_file_waits() -> None:
    authorities, begun = _Authorities(), threading.Event()

    def connect() -> str | None:
        begun.set()
        with authorities.trusted("other.pem"):
            return os.environ.get("SSL_CERT_FILE")

    with ThreadPoolExecutor() as threads:
        with authorities.trusted("own.pem"):
            waiting = threads.submit(connect)
            assert begun.wait(LIMIT_SECONDS)
            assert os.environ["SSL_CERT_FILE"] == "own.pem"
            assert not waiting.done()
        assert waiting.result(LIMIT_SECONDS) == "other.pem"
    assert os.environ["SSL_CERT_FILE"] == "before.pem"


def test_connection_that_fails_puts_the_variable_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(OSError, match="refused"), _Authorities().trusted("own.pem"):
        raise OSError("refused")
    assert "SSL_CERT_FILE" not in os.environ
