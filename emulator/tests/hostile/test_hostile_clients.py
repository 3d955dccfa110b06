"""Clients that stop reading, never finish, come in crowds, or vanish at any moment, on the whole emulator."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from hostile_client import Target, begin_login, cut_off, send_login, until
from raw_client import (
    ATTENTION,
    BATCH,
    COUNT_SESSIONS,
    HEADERS,
    PLAIN_PRELOGIN,
    PRELOGIN,
    RPC,
    TRANSACTION,
    RawClient,
)

DATABASE = "Hostile"
ENDLESS = (
    "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) "
    "SELECT i, REPLICATE('x', 100) AS filler FROM n OPTION (MAXRECURSION 0)"
)
IDLE_CLIENTS = 200


@pytest.fixture(autouse=True, scope="module")
def _database(target: Target) -> Iterator[None]:
    with contextlib.closing(target.server.connect_pymssql("master", autocommit=True)) as connection:
        connection.cursor().execute(f"IF DB_ID('{DATABASE}') IS NULL CREATE DATABASE {DATABASE}")
    with contextlib.closing(target.server.connect_pymssql(DATABASE, autocommit=True)) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE dbo.Half (id int NOT NULL PRIMARY KEY, note nvarchar(20) NULL)")
        yield
        cursor.execute("DROP TABLE dbo.Half")


def ask(target: Target, statement: str) -> object:
    with contextlib.closing(target.server.connect_pymssql(DATABASE)) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        row = cursor.fetchone()
    assert row is not None
    return row[0]


def raw_sessions(target: Target) -> int:
    count = ask(target, COUNT_SESSIONS)
    assert isinstance(count, int)
    return count


def send(client: RawClient, text: str) -> None:
    client.send(BATCH, HEADERS + text.encode("utf-16-le"))


@pytest.mark.parametrize("leave", [cut_off, lambda client: client.socket.close()], ids=["reset", "closed"])
def test_a_client_that_stops_reading_costs_little_and_blocks_nobody(
    target: Target, leave: Callable[[RawClient], None]
) -> None:
    until(lambda: raw_sessions(target) == 0)
    # The first large result loads the driver that reads it, which all others share.
    assert ask(target, "SELECT value FROM GENERATE_SERIES(1, 10000)") == 1
    clients = [target.client() for _ in range(4)]
    with target.memory_grows_by_less_than(80):
        for client in clients:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            send(client, ENDLESS)
            assert client.socket.recv(1)
        assert target.serves_others()
        assert ask(target, "SELECT COUNT(*) FROM dbo.Half") == 0
    for client in clients:
        leave(client)
    until(lambda: raw_sessions(target) == 0)


def test_a_client_that_reads_nothing_for_too_long_is_closed(canned_target: Target) -> None:
    with canned_target.client() as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        send(client, "select many")
        until(lambda: "the client read nothing for 1 seconds" in canned_target.log_text())
        assert canned_target.serves_others()


@pytest.mark.parametrize(
    "step",
    [
        lambda client: None,
        lambda client: client.socket.sendall(b"\x12"),
        lambda client: client.send(PRELOGIN, PLAIN_PRELOGIN, status=0),
        begin_login,
        lambda client: client.send(PRELOGIN, PLAIN_PRELOGIN[:-1] + b"\x01"),
        lambda client: client.socket.sendall(b"\x16\x03\x01"),
    ],
    ids=["silent", "one byte", "half a prelogin", "no login", "no TLS", "half a TLS record"],
)
def test_a_client_that_never_finishes_its_login_is_closed(
    canned_target: Target, step: Callable[[RawClient], None]
) -> None:
    lines = canned_target.log_text().count("\n")
    with RawClient(canned_target.port) as client:
        step(client)
        with contextlib.suppress(EOFError, ConnectionError):
            while client.socket.recv(4096):
                pass
    news = canned_target.log_text().splitlines()[lines:]
    assert any("closed: no login in time" in line for line in news)


def test_two_hundred_idle_clients_are_held_and_others_are_served(target: Target) -> None:
    until(lambda: raw_sessions(target) == 0)
    idle = []
    with target.memory_grows_by_less_than(200):
        for _ in range(IDLE_CLIENTS):
            idle.append(target.client())
        assert raw_sessions(target) == IDLE_CLIENTS
        used = target.server.process.cpu_times()
        began = time.monotonic()
        assert target.serves_others()
        until(lambda: time.monotonic() - began > 1)
        spent = target.server.process.cpu_times().user - used.user
        assert spent < 0.5, "idle clients keep the server busy"
    for client in (idle[0], idle[-1]):
        assert client.batch("SELECT 1 AS one")
    for client in idle:
        client.socket.close()
    until(lambda: raw_sessions(target) == 0)


def test_one_session_too_many_is_refused_with_17809_and_a_place_is_free_again(canned_few: Target) -> None:
    clients = [canned_few.client() for _ in range(3)]
    with RawClient(canned_few.port) as late:
        answer = late.log_in(canned_few.server.password)
        assert struct.pack("<i", 17809) in answer
        assert late.is_closed_by_server()
    clients[0].socket.close()

    def is_served() -> bool:
        with RawClient(canned_few.port) as client:
            return struct.pack("<i", 17809) not in client.log_in(canned_few.server.password)

    until(is_served)
    for client in clients:
        client.socket.close()


def test_one_connection_too_many_is_closed_at_once(canned_few: Target) -> None:
    strangers: list[RawClient] = []

    def takes_place() -> bool:
        """Whether one more client is answered. Clients of an earlier test may still have their places for a moment."""
        client = RawClient(canned_few.port)
        try:
            client.send(PRELOGIN, PLAIN_PRELOGIN)
            client.read()
        except (EOFError, ConnectionError):
            client.socket.close()
            return False
        strangers.append(client)
        return True

    for _ in range(5):
        until(takes_place)
    with RawClient(canned_few.port) as late:
        assert late.is_closed_by_server()
    for stranger in strangers:
        stranger.socket.close()
    until(lambda: "5 clients are connected already" in canned_few.log_text())
    until(lambda: _is_served(canned_few))


def _is_served(target: Target) -> bool:
    try:
        return target.serves_others()
    except (EOFError, ConnectionError):
        return False


INSERT = "INSERT INTO dbo.Half (id, note) VALUES (1, N'half')"
Step = Callable[[RawClient, Target], object]


def connect(client: RawClient, target: Target) -> None:
    client.log_in(target.server.password)


def use(client: RawClient, target: Target) -> None:
    connect(client, target)
    client.batch(f"USE {DATABASE}")


def begin(client: RawClient, target: Target) -> None:
    use(client, target)
    client.send(TRANSACTION, HEADERS + b"\x05\x00\x00\x00")
    client.read()


def call(client: RawClient, _target: Target) -> None:
    """sp_executesql by number, its statement as one nvarchar parameter."""
    text = INSERT.encode("utf-16-le")
    head = struct.pack("<HHH", 0xFFFF, 10, 0) + b"\x00\x00\xe7" + struct.pack("<H", 8000) + b"\x09\x04\x00\x22\x00"
    client.send(RPC, HEADERS + head + struct.pack("<H", len(text)) + text)


def sent(text: str) -> Step:
    return lambda client, _target: send(client, text)


def answered(text: str) -> Step:
    return lambda client, _target: client.batch(text)


SLOW = f"BEGIN TRAN {INSERT} WAITFOR DELAY '00:05:00' COMMIT"
STEPS: dict[str, tuple[Step, ...]] = {
    "connected": (),
    "prelogin sent": (lambda client, _target: client.send(PRELOGIN, PLAIN_PRELOGIN),),
    "prelogin answered": (lambda client, _target: begin_login(client),),
    "login sent": (
        lambda client, _target: begin_login(client),
        lambda client, target: send_login(client, target.server.password),
    ),
    "logged in": (connect,),
    "half a request": (use, lambda client, _target: client.send(BATCH, HEADERS, status=0)),
    "transaction begun": (begin,),
    "insert sent": (begin, sent(INSERT)),
    "insert answered": (begin, answered(INSERT)),
    "call sent": (begin, call),
    "savepoint taken": (begin, answered(INSERT), answered("SAVE TRAN s")),
    "implicit transaction": (use, answered("SET IMPLICIT_TRANSACTIONS ON"), answered(INSERT)),
    "batch in the middle": (use, sent(SLOW)),
    "result in the middle": (begin, answered(INSERT), sent(ENDLESS), lambda client, _target: client.socket.recv(1)),
    "attention sent": (use, sent(SLOW), lambda client, _target: client.send(ATTENTION, b"")),
    "next request sent behind": (use, sent(SLOW), sent("COMMIT")),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_connection_cut_off_leaves_nothing_half_done(target: Target, step: str) -> None:
    until(lambda: raw_sessions(target) == 0)
    client = RawClient(target.port)
    for act in STEPS[step]:
        act(client, target)
    cut_off(client)
    until(lambda: raw_sessions(target) == 0)
    assert ask(target, "SET LOCK_TIMEOUT 5000 SELECT COUNT(*) FROM dbo.Half WITH (TABLOCKX)") == 0


def test_a_committed_transaction_outlives_its_connection(target: Target) -> None:
    client = RawClient(target.port)
    use(client, target)
    client.batch(f"BEGIN TRAN {INSERT} COMMIT")
    cut_off(client)
    assert ask(target, "SELECT COUNT(*) FROM dbo.Half") == 1
    assert ask(target, "DELETE FROM dbo.Half SELECT @@ROWCOUNT") == 1


def test_clients_that_vanish_leave_no_thread_and_no_socket(canned_target: Target) -> None:
    process = psutil.Process(canned_target.server.process.pid)
    before = process.num_threads()
    for _ in range(50):
        client = canned_target.client()
        send(client, "wait")
        cut_off(client)
    until(lambda: process.num_threads() <= before)
    until(lambda: all(entry.status != "ESTABLISHED" for entry in process.net_connections()))
