"""Clients that change their mind, die, or come in crowds, on the whole emulator."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drivers import OWN_CONNECTION, mssql_python_pool
from emulator_process import Emulator
from raw_client import ATTENTION, ATTENTION_DONE, BATCH, COUNT_SESSIONS, HEADERS, RawClient

DATABASE = "Interruption"
MANY = (
    "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT i FROM n OPTION (MAXRECURSION 0)"
)


@pytest.fixture(scope="module")
def server(emulator: Emulator) -> Iterator[Emulator]:
    with closing(emulator.connect_pymssql("master", autocommit=True)) as connection:
        connection.cursor().execute(f"IF DB_ID('{DATABASE}') IS NULL CREATE DATABASE {DATABASE}")
    yield emulator


closing = contextlib.closing


def rows_of(connection: Any, statement: str) -> list[tuple[object, ...]]:
    cursor = connection.cursor()
    cursor.execute(statement)
    return [tuple(row) for row in cursor.fetchall()]


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        pause.wait(0.05)


def raw_sessions(server: Emulator) -> int:
    with closing(server.connect_pymssql(DATABASE)) as connection:
        [(count,)] = rows_of(connection, COUNT_SESSIONS)
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize("encrypt", ["yes", "no"])
@pytest.mark.parametrize(
    "statement",
    ["WAITFOR DELAY '00:01:00'", MANY.replace("SELECT i FROM", "SELECT MAX(i) FROM").replace("1000000", "500000000")],
)
def test_a_statement_given_up_ends_and_its_transaction_stays(server: Emulator, encrypt: str, statement: str) -> None:
    with closing(server.connect_mssql_python(DATABASE, encrypt=encrypt)) as connection:
        cursor = connection.cursor()
        cursor.execute("DROP TABLE IF EXISTS dbo.T; CREATE TABLE dbo.T (Id int)")
        connection.commit()
        cursor.execute("INSERT INTO dbo.T VALUES (1)")
        connection.timeout = 1
        impatient = connection.cursor()
        with pytest.raises(Exception, match=r"(?i)timeout"):
            impatient.execute(statement)
        connection.timeout = 0
        assert rows_of(connection, "SELECT @@TRANCOUNT, (SELECT COUNT(*) FROM dbo.T)") == [(1, 1)]
        connection.commit()
        assert rows_of(connection, "SELECT COUNT(*) FROM dbo.T") == [(1,)]


def test_attention_in_the_middle_of_a_large_result_is_answered_soon(server: Emulator) -> None:
    with RawClient(server.port) as client:
        client.log_in(server.password)
        client.send(BATCH, HEADERS + MANY.encode("utf-16-le"))
        first = client.socket.recv(4096)
        assert first
        client.send(ATTENTION, b"")
        read = len(first)
        while not (data := client.socket.recv(1 << 20)).endswith(ATTENTION_DONE):
            read += len(data)
        assert read < 12_000_000  # the whole result has 6 bytes per row and more than one buffer of packets
        assert client.batch("SELECT 1 AS one")


def test_a_client_that_dies_in_the_middle_leaves_no_session(server: Emulator) -> None:
    until(lambda: raw_sessions(server) == 0)
    statements = ("WAITFOR DELAY '00:05:00'", MANY, "BEGIN TRAN CREATE TABLE dbo.Lost (a int)")
    clients = [RawClient(server.port) for _ in statements]
    for client in clients:
        client.log_in(server.password)
    assert raw_sessions(server) == len(clients)
    for client, statement in zip(clients, statements, strict=True):
        client.send(BATCH, HEADERS + statement.encode("utf-16-le"))
        client.socket.close()
    until(lambda: raw_sessions(server) == 0)


@pytest.mark.parametrize("encrypt", ["yes", "no"])
def test_a_pooled_connection_comes_back_clean(server: Emulator, encrypt: str) -> None:
    def connect() -> Any:
        return closing(server.connect_mssql_python(DATABASE, encrypt=encrypt, autocommit=True))

    with mssql_python_pool():
        with connect() as connection:
            [before] = rows_of(connection, OWN_CONNECTION)
            connection.cursor().execute("CREATE TABLE #mine (a int)")
            connection.cursor().execute("BEGIN TRAN")
            connection.cursor().execute("USE master")
        with connect() as connection:
            assert rows_of(connection, "SELECT DB_NAME(), @@TRANCOUNT") == [(DATABASE, 0)]
            assert rows_of(connection, OWN_CONNECTION) == [before]
            with pytest.raises(Exception, match="Invalid object name '#mine'"):
                connection.cursor().execute("SELECT * FROM #mine")


def test_many_clients_at_once_are_all_served(server: Emulator) -> None:
    results: list[object] = []

    def work(number: int) -> None:
        connect = server.connect_pymssql if number % 2 else server.connect_mssql_python
        with closing(connect(DATABASE)) as connection:
            results.extend(row[0] for _ in range(5) for row in rows_of(connection, f"SELECT {number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == sorted(number for number in range(24) for _ in range(5))


def test_emulator_rests_while_a_statement_waits(server: Emulator) -> None:
    with (
        closing(server.connect_pymssql(DATABASE, autocommit=True)) as writer,
        closing(server.connect_pymssql(DATABASE, autocommit=True)) as waiter,
    ):
        writer.cursor().execute("CREATE TABLE dbo.Held (a int); BEGIN TRAN; ALTER TABLE dbo.Held ADD b int")
        before = server.process.cpu_times()
        with pytest.raises(Exception, match="Lock request time out period exceeded"):
            waiter.cursor().execute("SET LOCK_TIMEOUT 1500; DELETE FROM dbo.Held")
        after = server.process.cpu_times()
        writer.cursor().execute("ROLLBACK; DROP TABLE dbo.Held")
    assert after.user + after.system - before.user - before.system < 0.4
