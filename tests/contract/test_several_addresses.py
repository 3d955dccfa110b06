"""A server whose name leads to several addresses, one of which does not answer: the listener of a group in two subnets.

The name is made in a mount namespace of the test's own, with another /etc/hosts. Where the kernel allows none, these
tests are skipped.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from emulator_process import Emulator, running_emulator
from floodmark.core.errors import SourceUnavailableError
from floodmark.sources.sqlserver import driver, server_name
from floodmark.sources.sqlserver.driver import SqlServerConnection

_LISTENER = "listener.test"
_DEAD, _ALIVE = "127.0.0.1", "127.0.0.2"
"""In this order: resolvers put the address next that is nearest to the client's own, which is 127.0.0.1."""
_UNSHARE = ("unshare", "--mount", "--map-root-user")
_CHILD = """
import sys
from floodmark.core.errors import FloodmarkError
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sources.sqlserver import driver
driver.CONNECT_TIMEOUT_SECONDS = 3
try:
    with driver.connect(SqlServerConnection.from_json(sys.stdin.read())) as session:
        print(session.fetch("SELECT 42"))
except FloodmarkError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def dead_port() -> Iterator[int]:
    """A port of the first address that takes connections and never answers: its queue is full."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.bind((_DEAD, 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(20):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect((_DEAD, port))
        with pytest.raises(TimeoutError):
            socket.create_connection((_DEAD, port), timeout=1)
        yield port


@pytest.fixture(scope="module")
def listener(open_dir: Path, dead_port: int) -> Iterator[Emulator]:
    with running_emulator(open_dir / "listener", "--host", _ALIVE, "--port", str(dead_port)) as running:
        yield running


def connect_by_name(folder: Path, at: SqlServerConnection) -> str:
    """Return what a process prints for which the name has both addresses."""
    hosts = folder / "hosts"
    hosts.write_text(f"{_DEAD} {_LISTENER} localhost\n{_ALIVE} {_LISTENER}\n")
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    done = subprocess.run(
        [*_UNSHARE, "sh", "-c", script, str(hosts), sys.executable, "-c", _CHILD],
        input=at.to_json(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def at(listener: Emulator) -> SqlServerConnection:
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the kernel gives this user no mount namespace, in which a name could be made")
    return SqlServerConnection(
        _LISTENER, listener.port, "Test", listener.user, listener.password, trust_server_certificate=True
    )


def test_all_addresses_are_tried_at_once_where_asked_for(at: SqlServerConnection, tmp_path: Path) -> None:
    assert connect_by_name(tmp_path, replace(at, multi_subnet_failover=True)) == "[(42,)]\n"


def test_address_that_does_not_answer_is_tried_again_with_the_setting_named(
    at: SqlServerConnection, tmp_path: Path
) -> None:
    printed = connect_by_name(tmp_path, at)
    assert printed.startswith(f"SourceUnavailableError sa@{_LISTENER}:{at.port}/Test: ")
    assert ". The host has 2 addresses" in printed
    assert "set multi_subnet_failover in the connection" in printed


@pytest.mark.parametrize(("found", "is_named"), [((_DEAD, _ALIVE), True), ((_ALIVE, _ALIVE), False)])
def test_setting_is_named_only_where_there_are_several_addresses(
    monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...], is_named: bool
) -> None:
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in found]
    monkeypatch.setattr(driver, "CONNECT_TIMEOUT_SECONDS", 1)
    monkeypatch.setattr(server_name.socket, "getaddrinfo", lambda *_, **__: entries)
    with socket.socket() as closed:
        closed.bind((_DEAD, 0))
        nowhere = SqlServerConnection(_DEAD, closed.getsockname()[1], "Shop", "sa", "p", trust_server_certificate=True)
        for setting in (False, True):
            with pytest.raises(SourceUnavailableError) as caught:
                driver.connect(replace(nowhere, multi_subnet_failover=setting))
            assert ("multi_subnet_failover" in str(caught.value)) == (is_named and not setting)
