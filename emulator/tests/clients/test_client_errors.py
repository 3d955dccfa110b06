"""Errors under every client: number, line and procedure as the server reports them, and a connection that goes on."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from client_body import DATABASE, error_of, rows_of, run
from drivers import DRIVERS, Driver
from emulator_process import Emulator

PROCEDURE = """CREATE OR ALTER PROCEDURE dbo.Fails @how int AS
BEGIN
    SET NOCOUNT ON;

    IF @how = 1
        SELECT 1/0;
    ELSE
        RAISERROR('raised %d', 15, 7, @how);
END"""


@pytest.fixture(scope="module")
def failing(server: Emulator) -> str:
    with contextlib.closing(server.connect_pymssql(DATABASE, autocommit=True)) as admin:
        run(admin, PROCEDURE)
    return "dbo.Fails"


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("SELECT * FROM dbo.Missing", 208),
        ("SELECT Missing FROM dbo.Things", 207),
        ("SELECT (1", 102),
        ("SELECT 1/0", 8134),
        ("SELECT CAST('x' AS int)", 245),
        ("INSERT INTO dbo.Things (Name) VALUES (NULL)", 515),
        ("INSERT INTO dbo.Things (Name) VALUES (N'a'), (N'a')", 2627),
        ("INSERT INTO dbo.Things (Id, Name) VALUES (1, N'a')", 544),
        ("EXEC dbo.NoSuchProcedure", 2812),
        ("THROW 51000, N'thrown', 1", 51000),
        ("RAISERROR(N'raised', 16, 1)", 50000),
    ],
)
@pytest.mark.usefixtures("table", "failing")
def test_an_error_has_its_number(connection: Any, driver: Driver, statement: str, number: int) -> None:
    cursor = connection.cursor()

    def fetch() -> None:
        cursor.execute(statement)
        cursor.fetchall()

    error = error_of(fetch)
    cursor.close()
    # mssql-python shows the server's words only.
    assert driver.number(error) == (None if driver.name == "mssql-python" else number)
    assert rows_of(connection, "SELECT 1") == [(1,)]


def test_a_catch_block_learns_number_line_and_procedure(connection: Any, failing: str) -> None:
    caught = (
        "BEGIN CATCH SELECT ERROR_NUMBER(), ERROR_SEVERITY(), ERROR_STATE(), ERROR_LINE(), ERROR_PROCEDURE() END CATCH"
    )
    assert rows_of(connection, f"BEGIN TRY EXEC {failing} 1 END TRY {caught}") == [(8134, 16, 1, 6, "Fails")]
    assert rows_of(connection, f"BEGIN TRY EXEC {failing} 2 END TRY {caught}") == [(50000, 15, 7, 8, "Fails")]
    assert rows_of(connection, f"BEGIN TRY\n\nSELECT 1/0 END TRY {caught}")[-1] == (8134, 16, 1, 3, None)


def test_python_tds_receives_line_procedure_and_state(server: Emulator, failing: str) -> None:
    with contextlib.closing(DRIVERS["python-tds"].connect(server, DATABASE)) as connection:
        error: Any = error_of(lambda: run(connection, f"SELECT 1\n;EXEC {failing} 2").nextset())
    assert (error.number, error.severity, error.state, error.line, error.procname) == (50000, 15, 7, 8, "Fails")


def test_db_library_receives_line_procedure_and_state(server: Emulator, failing: str) -> None:
    from pymssql import _mssql

    connection = _mssql.connect(
        server=server.host, port=str(server.port), user=server.user, password=server.password, database=DATABASE
    )
    with contextlib.closing(connection):
        error: Any = error_of(lambda: connection.execute_non_query(f"EXEC {failing} 2"))
    assert (error.number, error.severity, error.state, error.line, error.procname) == (50000, 15, 7, 8, b"Fails")


def test_a_message_of_print_is_no_error(connection: Any) -> None:
    run(connection, "PRINT 'only words'")
    run(connection, "RAISERROR('a hint', 10, 1)")
    assert rows_of(connection, "SELECT 1") == [(1,)]
