"""Sessions under every client: savepoints, implicit transactions, statements used again, packets, giving up, pools."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from client_body import DATABASE, error_of, names_in, rows_of, run
from drivers import DRIVERS, OWN_CONNECTION, Driver, mssql_python_pool
from emulator_process import Emulator


@pytest.fixture
def autocommit(driver: Driver, server: Emulator) -> Any:
    with contextlib.closing(driver.connect(server, DATABASE, autocommit=True)) as connection:
        yield connection


def test_a_savepoint_undoes_what_came_after_it(connection: Any, server: Emulator, table: str) -> None:
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'kept')")
    run(connection, "SAVE TRANSACTION half")
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'lost')")
    run(connection, "ROLLBACK TRANSACTION half")
    run(connection, f"INSERT INTO {table} (Name) VALUES (N'after')")
    assert rows_of(connection, "SELECT @@TRANCOUNT") == [(1,)]
    connection.commit()
    assert names_in(server) == ["after", "kept"]


def test_implicit_transactions_begin_with_the_first_change(autocommit: Any, server: Emulator, table: str) -> None:
    run(autocommit, "SET IMPLICIT_TRANSACTIONS ON")
    assert rows_of(autocommit, "SELECT @@TRANCOUNT") == [(0,)]
    run(autocommit, f"INSERT INTO {table} (Name) VALUES (N'kept')")
    assert rows_of(autocommit, "SELECT @@TRANCOUNT") == [(1,)]
    run(autocommit, "IF @@TRANCOUNT > 0 COMMIT TRAN")
    run(autocommit, f"INSERT INTO {table} (Name) VALUES (N'lost')")
    run(autocommit, "IF @@TRANCOUNT > 0 ROLLBACK TRAN")
    run(autocommit, "SET IMPLICIT_TRANSACTIONS OFF")
    assert rows_of(autocommit, "SELECT @@TRANCOUNT") == [(0,)]
    assert names_in(server) == ["kept"]


def test_without_a_transaction_each_statement_is_kept_at_once(autocommit: Any, server: Emulator, table: str) -> None:
    run(autocommit, f"INSERT INTO {table} (Name) VALUES (N'at once')")
    assert names_in(server) == ["at once"]


def test_a_statement_is_used_again_with_other_values(connection: Any, driver: Driver, table: str) -> None:
    cursor = connection.cursor()
    for number in range(30):
        cursor.execute(f"INSERT INTO {table} (Name) VALUES ({driver.mark})", (f"n{number:02}",))
    statement = f"SELECT Name, {driver.mark} FROM {table} WHERE Name >= {driver.mark} ORDER BY Name"
    for number in (29, 28, 0):
        cursor.execute(statement, (number, f"n{number:02}"))
        rows = [tuple(row) for row in cursor.fetchall()]
        assert rows == [(f"n{i:02}", number) for i in range(number, 30)]


def test_a_procedure_gives_back_results_status_and_output(autocommit: Any) -> None:
    run(
        autocommit,
        "CREATE OR ALTER PROCEDURE dbo.Twice @x int, @twice int OUTPUT AS SELECT @x AS x SET @twice = 2 * @x RETURN 3",
    )
    batch = "DECLARE @rc int, @out int EXEC @rc = dbo.Twice 21, @out OUTPUT SELECT @rc, @out"
    cursor = run(autocommit, batch)
    assert [tuple(row) for row in cursor.fetchall()] == [(21,)]
    assert cursor.nextset()
    assert [tuple(row) for row in cursor.fetchall()] == [(3, 42)]


def test_pymssql_and_python_tds_call_a_procedure_by_its_name(server: Emulator) -> None:
    import pymssql
    import pytds

    with contextlib.closing(DRIVERS["pymssql"].connect(server, DATABASE, autocommit=True)) as connection:
        run(connection, "CREATE OR ALTER PROCEDURE dbo.Add5 @x int, @y int OUTPUT AS SET @y = @x + 5")
        assert connection.cursor().callproc("dbo.Add5", (1, pymssql.output(int))) == (1, 6)
    with contextlib.closing(DRIVERS["python-tds"].connect(server, DATABASE, autocommit=True)) as connection:
        cursor = connection.cursor()
        outcome = cursor.callproc("dbo.Add5", (1, pytds.output(param_type=int)))
        cursor.fetchall() if cursor.description else None
        assert list(outcome)[-1] == 6 or cursor.get_proc_outputs() == [6]


PACKETS: dict[str, Callable[[Emulator, int], Any]] = {
    "python-tds": lambda server, size: DRIVERS["python-tds"].connect(server, DATABASE, blocksize=size),
    "pyodbc": lambda server, size: DRIVERS["pyodbc"].connect(server, DATABASE, attrs_before={112: size}),
}


@pytest.mark.parametrize("name", PACKETS)
@pytest.mark.parametrize("packet_bytes", [512, 4096, 32767])
def test_long_values_travel_in_packets_of_any_size(name: str, packet_bytes: int, server: Emulator) -> None:
    if reason := DRIVERS[name].why_not():
        pytest.skip(reason)
    text = "🌊é" * 50_000
    with contextlib.closing(PACKETS[name](server, packet_bytes)) as connection:
        assert rows_of(connection, f"SELECT LEN({DRIVERS[name].mark}), {DRIVERS[name].mark}", text, text) == [
            (150_000, text)
        ]


def _give_up_soon(name: str, server: Emulator) -> Any:
    if name == "python-tds":
        # Long enough, on a busy machine, for what comes after the statement that is given up.
        return DRIVERS[name].connect(server, DATABASE, timeout=3)
    connection = DRIVERS[name].connect(server, DATABASE)
    connection.timeout = 3
    return connection


@pytest.mark.parametrize("name", ["pyodbc", "python-tds", "mssql-python"])
def test_a_statement_given_up_ends_and_the_session_goes_on(name: str, server: Emulator) -> None:
    if reason := DRIVERS[name].why_not():
        pytest.skip(reason)
    with contextlib.closing(_give_up_soon(name, server)) as connection:
        before = time.monotonic()
        error = error_of(lambda: run(connection, "WAITFOR DELAY '00:01:00'"))
        assert "time" in str(error).lower()
        assert time.monotonic() - before < 20
        assert rows_of(connection, "SELECT 1") == [(1,)]


POOLS: dict[str, Callable[[Emulator], Any]] = {
    "python-tds": lambda server: DRIVERS["python-tds"].connect(server, DATABASE, pooling=True, autocommit=True),
    "mssql-python": lambda server: server.connect_mssql_python(DATABASE, autocommit=True),
}
"""Drivers that keep connections and use them again."""


@pytest.mark.parametrize("name", POOLS)
def test_a_connection_comes_back_clean_from_its_pool(name: str, server: Emulator) -> None:
    def connect() -> Any:
        return contextlib.closing(POOLS[name](server))

    with mssql_python_pool():
        with connect() as connection:
            [before] = rows_of(connection, OWN_CONNECTION)
            run(connection, "CREATE TABLE #mine (a int)")
            run(connection, "SET LOCK_TIMEOUT 77")
            run(connection, "USE master")
        with connect() as connection:
            assert rows_of(connection, "SELECT DB_NAME(), @@LOCK_TIMEOUT") == [(DATABASE, -1)]
            assert rows_of(connection, OWN_CONNECTION) == [before]
            assert "#mine" in str(error_of(lambda: run(connection, "SELECT * FROM #mine").fetchall()))


def test_a_transaction_that_was_left_open_is_gone_when_python_tds_takes_the_connection_again(
    server: Emulator, table: str
) -> None:
    def connect() -> Any:
        return contextlib.closing(DRIVERS["python-tds"].connect(server, DATABASE, pooling=True, autocommit=False))

    with connect() as connection:
        [before] = rows_of(connection, OWN_CONNECTION)
        run(connection, f"INSERT INTO {table} (Name) VALUES (N'left open')")
    for name in ("first", "second"):
        with connect() as connection:
            assert rows_of(connection, OWN_CONNECTION) == [before]
            run(connection, f"INSERT INTO {table} (Name) VALUES (N'{name}')")
            connection.commit()
    with connect() as connection:
        run(connection, f"INSERT INTO {table} (Name) VALUES (N'undone')")
        connection.rollback()
        assert names_in(server) == ["first", "second"]


def test_threads_share_the_pool_of_python_tds(server: Emulator, table: str) -> None:
    def insert(number: int) -> Any:
        with contextlib.closing(
            DRIVERS["python-tds"].connect(server, DATABASE, pooling=True, autocommit=False)
        ) as connection:
            run(connection, f"INSERT INTO {table} (Name) VALUES (N'n{number:02}')")
            connection.commit()
            return rows_of(connection, OWN_CONNECTION)[0]

    with ThreadPoolExecutor(4) as threads:
        connections = set(threads.map(insert, range(40)))
    assert names_in(server) == [f"n{number:02}" for number in range(40)]
    assert len(connections) <= 8  # those of the four threads, and those that were in the pool before
