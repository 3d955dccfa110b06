"""Every type there and back under every client, with its extremes and NULL."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from client_body import TYPES, error_of, rows_of, run
from drivers import Driver


@pytest.mark.parametrize(("declared", "literal", "value"), TYPES, ids=[declared for declared, _, _ in TYPES])
def test_a_type_comes_back_as_it_went_in(connection: Any, declared: str, literal: str, value: object) -> None:
    run(connection, f"CREATE TABLE #t (Id int NOT NULL PRIMARY KEY, Value {declared} NULL)")
    run(connection, f"INSERT INTO #t (Id, Value) VALUES (1, {literal}), (2, NULL)")
    assert rows_of(connection, "SELECT Value FROM #t ORDER BY Id") == [(value,), (None,)]
    assert rows_of(connection, "SELECT Value FROM #t WHERE Id > 2") == []
    run(connection, "DROP TABLE #t")


def test_all_types_come_back_in_one_row(connection: Any) -> None:
    columns = ", ".join(f"c{i} {declared} NULL" for i, (declared, _, _) in enumerate(TYPES))
    run(connection, f"CREATE TABLE #all (Id int NOT NULL, {columns}, Version rowversion)")
    names = ", ".join(f"c{i}" for i in range(len(TYPES)))
    values = ", ".join(literal for _, literal, _ in TYPES)
    run(connection, f"INSERT INTO #all (Id, {names}) VALUES (1, {values})")
    run(connection, "INSERT INTO #all (Id) VALUES (2)")
    full, empty = rows_of(connection, "SELECT * FROM #all ORDER BY Id")
    assert full[1:-1] == tuple(value for _, _, value in TYPES)
    assert empty[1:-1] == (None,) * len(TYPES)
    assert isinstance(full[-1], bytes)
    assert len(full[-1]) == 8
    assert full[-1] < empty[-1]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("int", 5),
        ("bigint", -(2**40)),
        ("nvarchar(50)", "O'Brien é 🌊"),
        ("nvarchar(50)", ""),
        ("decimal(18,2)", Decimal("-12.50")),
        ("float", 0.1),
        ("bit", True),
        ("datetime2(3)", datetime(2024, 1, 2, 3, 4, 5, 120000)),
        ("date", date(2024, 2, 29)),
        ("uniqueidentifier", UUID("12345678-9abc-def0-1234-56789abcdef0")),
        ("varbinary(10)", b"\x00\xff"),
        ("int", None),
    ],
)
def test_a_parameter_arrives_as_it_was_given(connection: Any, driver: Driver, declared: str, value: object) -> None:
    given = driver.binary(value) if isinstance(value, bytes) else value
    assert rows_of(connection, f"SELECT CAST({driver.mark} AS {declared})", given) == [(value,)]


def test_microseconds_of_a_parameter_arrive(connection: Any, driver: Driver) -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 575715)
    [(found,)] = rows_of(connection, f"SELECT CAST({driver.mark} AS datetime2(6))", moment)
    # pymssql writes its parameters into the statement, with milliseconds.
    assert found == (moment.replace(microsecond=575000) if driver.name == "pymssql" else moment)


@pytest.mark.parametrize(("declared", "length"), [("nvarchar(3)", 3), ("nchar(4)", 4)])
def test_parameter_with_too_many_code_units_is_refused_by_its_column(
    connection: Any, driver: Driver, declared: str, length: int
) -> None:
    run(connection, f"CREATE TABLE #units (v {declared} NULL)")
    run(connection, f"INSERT INTO #units VALUES ({driver.mark})", "🌊a")
    assert rows_of(connection, "SELECT v, LEN(v) FROM #units") == [
        ("🌊a".ljust(length - 1) if declared[1] == "c" else "🌊a", 3)
    ]
    error = error_of(lambda: run(connection, f"INSERT INTO #units VALUES ({driver.mark})", "🌊🌊🌊"))
    assert "truncated" in str(error)


def test_long_text_and_bytes_travel_in_both_directions(connection: Any, driver: Driver) -> None:
    text = "🌊é" * 100_000
    [row] = rows_of(connection, f"SELECT LEN({driver.mark}) AS n, {driver.mark} AS t", text, text)
    assert row == (300_000, text)


@pytest.mark.parametrize("rows", [7, 7_000], ids=["small", "large"])
def test_code_units_of_national_strings_come_as_bytes(connection: Any, rows: int) -> None:
    texts = ["", "a", "n\u00e4\u20ac", "\0b", "\ud83d", "\U0001f600"]
    values = "(0, N''), (1, N'a'), (2, N'n\u00e4\u20ac'), (3, NCHAR(0) + N'b'), (4, NCHAR(55357)), (5, N'\U0001f600')"
    run(connection, "CREATE TABLE dbo.Units (Id int NOT NULL, Name nvarchar(8) NULL, Code nchar(4) NULL)")
    run(
        connection,
        f"INSERT INTO dbo.Units SELECT g.value, v, v FROM (VALUES {values}, (6, NULL)) AS s (n, v), "
        f"GENERATE_SERIES(0, {rows - 1}) AS g WHERE g.value % 7 = n",
    )
    connection.commit()
    query = "SELECT Id, CAST(Name AS varbinary(16)), CAST(Name AS varbinary(max)), CAST(Name AS varbinary(3)), "
    found = sorted(rows_of(connection, query + "CAST(Code AS varbinary(8)) FROM dbo.Units"))
    units = [text.encode("utf-16-le", "surrogatepass") for text in texts]
    expected = [(each, each, each[:3], each + b" \0" * (4 - len(each) // 2)) for each in units] + [(None,) * 4]
    run(connection, "DROP TABLE dbo.Units")
    connection.commit()
    assert found == [(n, *expected[n % 7]) for n in range(rows)]
