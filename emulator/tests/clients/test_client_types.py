"""Every type there and back under every client, with its extremes and NULL."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from client_body import TYPES, rows_of, run
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


def test_long_text_and_bytes_travel_in_both_directions(connection: Any, driver: Driver) -> None:
    text = "🌊é" * 100_000
    [row] = rows_of(connection, f"SELECT LEN({driver.mark}) AS n, {driver.mark} AS t", text, text)
    assert row == (300_000, text)
