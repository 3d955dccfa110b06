"""Questions of drivers about a statement before it runs: its parameters and the columns of its result."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from client_body import DATABASE, error_of, rows_of, run
from drivers import DRIVERS
from emulator_process import Emulator

TABLE = (
    "CREATE TABLE dbo.Described (Id int IDENTITY PRIMARY KEY, Name nvarchar(50) NOT NULL, Code char(3), "
    "Amount decimal(18,2), Seen datetime2(3), Photo varbinary(max), Version rowversion, Twice AS Amount * 2)"
)
PROCEDURE = (
    "CREATE OR ALTER PROCEDURE dbo.Describes @Key bigint, @Total decimal(9,3) OUTPUT AS "
    "IF @Key > 0 SET @Total = 1 ELSE SELECT Id, Name FROM dbo.Described WHERE Id = @Key"
)


@pytest.fixture
def admin(server: Emulator) -> Iterator[Any]:
    with contextlib.closing(server.connect_pymssql(DATABASE, autocommit=True)) as connection:
        run(connection, "DROP TABLE IF EXISTS dbo.Described")
        run(connection, TABLE)
        run(connection, PROCEDURE)
        yield connection


def described(connection: Any, call: str, *columns: str) -> list[tuple[object, ...]]:
    """These columns of what a procedure gives."""
    cursor = run(connection, call)
    names = [column[0] for column in cursor.description]
    return [tuple(row[names.index(column)] for column in columns) for row in cursor.fetchall()]


def suggested(connection: Any, text: str, parameters: str = "") -> dict[object, object]:
    doubled = text.replace("'", "''")
    call = f"EXEC sp_describe_undeclared_parameters N'{doubled}', N'{parameters}'"
    return dict(described(connection, call, "name", "suggested_system_type_name"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("SELECT * FROM dbo.Described WHERE Name = @a AND Id > @b", {"@a": "nvarchar(50)", "@b": "int"}),
        ("SELECT * FROM dbo.Described WHERE Code = @a AND Code > @b", {"@a": "char(3)", "@b": "varchar(8000)"}),
        (
            "INSERT INTO dbo.Described (Name, Amount, Photo) VALUES (@a, @b, @c)",
            {"@a": "nvarchar(50)", "@b": "decimal(18,2)", "@c": "varbinary(max)"},
        ),
        (
            "INSERT INTO dbo.Described (Name, Seen) OUTPUT inserted.Id VALUES (@a, @b), (@c, @d)",
            {"@a": "nvarchar(50)", "@b": "datetime2(3)", "@c": "nvarchar(50)", "@d": "datetime2(3)"},
        ),
        ("UPDATE dbo.Described SET Code = @a WHERE Id IN (@b, @c)", {"@a": "char(3)", "@b": "int", "@c": "int"}),
        ("DELETE FROM dbo.Described WHERE Amount BETWEEN @a AND @b", {"@a": "numeric(38,19)", "@b": "numeric(38,19)"}),
        ("SELECT Id + @a FROM dbo.Described WHERE Name LIKE @b", {"@a": "int", "@b": "nvarchar(4000)"}),
        ("SELECT CAST(@a AS date), CONVERT(varchar(7), @b)", {"@a": "date", "@b": "varchar(7)"}),
        (
            "SELECT d.Id FROM dbo.Described AS d WHERE EXISTS (SELECT 1 FROM dbo.Described AS o WHERE o.Seen = @a)",
            {"@a": "datetime2(3)"},
        ),
        (
            "SELECT Id FROM dbo.Described ORDER BY Id OFFSET @a ROWS FETCH NEXT @b ROWS ONLY",
            {"@a": "bigint", "@b": "bigint"},
        ),
        ("EXEC dbo.Describes @a, @Total = @b OUTPUT", {"@a": "bigint", "@b": "decimal(9,3)"}),
        ("SELECT 1", {}),
    ],
)
def test_a_parameter_has_the_type_that_its_place_requires(admin: Any, text: str, types: dict[object, object]) -> None:
    assert suggested(admin, text) == types


def test_a_declared_parameter_is_left_out(admin: Any) -> None:
    text = "SELECT * FROM dbo.Described WHERE Name = @a AND Id = @b"
    assert suggested(admin, text, "@b int") == {"@a": "nvarchar(50)"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SELECT @a", 11502),
        ("SELECT * FROM dbo.Described WHERE Id = @a OR Id = @a", 11508),
        ("SELECT * FROM dbo.Missing WHERE Id = @a", 208),
        ("SELECT * FROM #t WHERE Id = @a", 11526),
        ("SELEC @a (", 102),
    ],
)
def test_a_statement_that_determines_no_type_is_an_error(admin: Any, text: str, number: int) -> None:
    assert DRIVERS["pymssql"].number(error_of(lambda: suggested(admin, text))) == number


def test_a_result_is_described_without_running_the_batch(admin: Any) -> None:
    call = "EXEC sp_describe_first_result_set N'SET NOCOUNT ON; INSERT INTO dbo.Described (Name) VALUES (@n); "
    columns = ("column_ordinal", "name", "system_type_name", "max_length", "precision", "scale", "is_nullable")
    found = described(admin, f"{call} SELECT *, Id + 1 AS One FROM dbo.Described', N'@n nvarchar(9)'", *columns)
    assert found == [
        (1, "Id", "int", 4, 10, 0, False),
        (2, "Name", "nvarchar(50)", 100, 0, 0, False),
        (3, "Code", "char(3)", 3, 0, 0, True),
        (4, "Amount", "decimal(18,2)", 9, 18, 2, True),
        (5, "Seen", "datetime2(3)", 7, 23, 3, True),
        (6, "Photo", "varbinary(max)", -1, 0, 0, True),
        (7, "Version", "timestamp", 8, 0, 0, False),
        (8, "Twice", "decimal(20,2)", 13, 20, 2, True),
        (9, "One", "int", 4, 10, 0, True),
    ]
    assert rows_of(admin, "SELECT COUNT(*) FROM dbo.Described") == [(0,)]
    flags = ("name", "is_identity_column", "is_computed_column", "is_updateable")
    assert described(
        admin, "EXEC sp_describe_first_result_set N'SELECT Id, Twice, Name FROM dbo.Described'", *flags
    ) == [
        ("Id", True, False, False),
        ("Twice", False, True, False),
        ("Name", False, False, True),
    ]
    called = "EXEC sp_describe_first_result_set @tsql = N'DECLARE @t decimal(9,3); EXEC dbo.Describes 1, @t OUTPUT'"
    assert described(admin, called, "name") == [("Id",), ("Name",)]
    assert described(admin, "EXEC sp_describe_first_result_set N'PRINT 1'", "name") == []


def test_pyodbc_learns_the_types_of_nulls_and_of_long_lists(admin: Any, server: Emulator) -> None:
    driver = DRIVERS["pyodbc"]
    if reason := driver.why_not():
        pytest.skip(reason)
    with contextlib.closing(driver.connect(server, DATABASE, autocommit=True)) as connection:
        insert = "INSERT INTO dbo.Described (Name, Code, Amount, Seen, Photo) VALUES (?, ?, ?, ?, ?)"
        connection.cursor().execute(insert, ("a", None, None, None, None))
        cursor = connection.cursor()
        cursor.fast_executemany = True
        cursor.executemany(insert, [(f"n{i}", None, Decimal(i) / 4, None, b"\x01" * i) for i in range(1, 50)])
        found = rows_of(connection, "SELECT COUNT(*), SUM(Amount), MAX(DATALENGTH(Photo)) FROM dbo.Described")
    assert found == [(50, Decimal("306.25"), 49)]


def test_mssql_python_puts_nulls_into_columns_of_every_type(admin: Any, server: Emulator) -> None:
    with contextlib.closing(server.connect_mssql_python(DATABASE, autocommit=True)) as connection:
        insert = "INSERT INTO dbo.Described (Name, Code, Amount, Seen, Photo) VALUES (?, ?, ?, ?, ?)"
        connection.cursor().execute(insert, ("a", None, None, None, None))
        assert rows_of(connection, "SELECT Code, Amount, Seen, Photo FROM dbo.Described") == [(None,) * 4]


def test_parameters_of_types_that_users_made_are_described(admin: Any) -> None:
    run(admin, "IF TYPE_ID('dbo.Sizes') IS NULL EXEC ('CREATE TYPE dbo.Sizes AS TABLE (n int)')")
    run(admin, "IF TYPE_ID('dbo.Label') IS NULL EXEC ('CREATE TYPE dbo.Label FROM nvarchar(9)')")
    run(admin, "CREATE OR ALTER PROCEDURE dbo.Typed @s dbo.Sizes READONLY, @l Label, @n int AS SELECT 1")
    columns = ["name", "suggested_system_type_id", "suggested_system_type_name", "suggested_user_type_schema"]
    columns += ["suggested_user_type_name", "suggested_tds_type_id"]
    call = "EXEC sp_describe_undeclared_parameters N'EXEC dbo.Typed @a, @b, @c'"
    assert described(admin, call, *columns) == [
        ("@a", 243, None, "dbo", "Sizes", 243),
        ("@b", 231, "nvarchar(9)", "dbo", "Label", 231),
        ("@c", 56, "int", None, None, 38),
    ]
    columns = ["COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "SS_TYPE_SCHEMA_NAME", "IS_NULLABLE"]
    assert described(admin, "EXEC sp_sproc_columns_100 'Typed', @ODBCVer = 3", *columns)[1:] == [
        ("@s", -153, "Sizes", "dbo", "YES"),
        ("@l", -9, "Label", None, "YES"),
        ("@n", 4, "int", None, "YES"),
    ]
