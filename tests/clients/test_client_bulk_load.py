"""Bulk load by every client that has an interface for it: rows in, all of them or none, as the table declares them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from client_body import DATABASE, error_of, rows_of, run
from drivers import DRIVERS, Column, Driver, Rows

from emulator_process import Emulator

KEY, TEXT, AMOUNT, MOMENT, DAY = (
    Column(1, "Id"),
    Column(2, "Name"),
    Column(3, "Amount"),
    Column(4, "Seen"),
    Column(5, "Born"),
)
COLUMNS = (KEY, TEXT, AMOUNT, MOMENT, DAY)
ROWS: list[tuple[Any, ...]] = [
    (1, "é 🌊\t\\x\r\n'", Decimal("-12.3400"), datetime(2024, 2, 29, 12, 30, 0, 123000), date(1753, 1, 1)),
    (2, "plain", Decimal("99999999999999.9999"), datetime(9999, 12, 31, 23, 59, 59, 999000), date(9999, 12, 31)),
    (3, None, None, None, None),
]


@pytest.fixture(params=[name for name, driver in DRIVERS.items() if driver.load])
def driver(request: pytest.FixtureRequest) -> Driver:
    return DRIVERS[request.param]


@pytest.fixture
def loaded(server: Emulator) -> Iterator[str]:
    """An empty table for COLUMNS, its first column an identity, its third with a default."""
    with contextlib.closing(server.connect_pymssql(DATABASE, autocommit=True)) as admin:
        run(admin, "DROP TABLE IF EXISTS dbo.Loaded")
        run(
            admin,
            "CREATE TABLE dbo.Loaded (Id int IDENTITY PRIMARY KEY, Name nvarchar(20) NULL, "
            "Amount decimal(18,4) NULL DEFAULT 7, Seen datetime2(3) NULL, Born date NULL, CHECK (Id <> 90000))",
        )
        yield "dbo.Loaded"


def load(driver: Driver, connection: Any, table: str, columns: Sequence[Column], rows: Rows) -> None:
    assert driver.load is not None
    driver.load(connection, table, columns, rows)


@pytest.fixture
def autocommit(driver: Driver, server: Emulator) -> Iterator[Any]:
    with contextlib.closing(driver.connect(server, DATABASE, autocommit=True)) as connection:
        yield connection


def test_rows_loaded_in_bulk_are_the_rows_that_were_given(autocommit: Any, driver: Driver, loaded: str) -> None:
    load(driver, autocommit, loaded, COLUMNS, ROWS)
    expected = [*ROWS[:2], (3, None, Decimal("7.0000"), None, None)]
    assert rows_of(autocommit, f"SELECT * FROM {loaded} ORDER BY Id") == expected


def test_an_identity_that_is_left_out_is_given_by_the_server(autocommit: Any, driver: Driver, loaded: str) -> None:
    load(driver, autocommit, loaded, [TEXT], [("a",), ("b",)])
    assert rows_of(autocommit, f"SELECT Id, Name FROM {loaded} ORDER BY Id") == [(1, "a"), (2, "b")]


def test_an_identity_that_was_loaded_moves_the_counter_on(autocommit: Any, driver: Driver, loaded: str) -> None:
    load(driver, autocommit, loaded, [KEY, TEXT], [(41, "a")])
    run(autocommit, f"INSERT INTO {loaded} (Name) VALUES (N'next')")
    assert rows_of(autocommit, f"SELECT Id FROM {loaded} ORDER BY Id") == [(41,), (42,)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((5000, "x"), "Violation of PRIMARY KEY constraint"),
        ((90000, "x"), "conflicted with the CHECK constraint"),
    ],
)
def test_a_load_that_fails_in_its_last_row_leaves_nothing(
    autocommit: Any, driver: Driver, loaded: str, row: tuple[Any, ...], message: str
) -> None:
    rows = [*((i, f"n{i}") for i in range(5001)), row]
    with pytest.raises(Exception, match=message):
        load(driver, autocommit, loaded, [KEY, TEXT], rows[2:])
    assert rows_of(autocommit, f"SELECT COUNT(*) FROM {loaded}") == [(0,)]


def test_a_load_in_a_transaction_is_undone_with_it(connection: Any, driver: Driver, loaded: str) -> None:
    if driver.name == "mssql-python":
        pytest.skip("its bulkcopy opens a connection of its own, beside the transaction")
    load(driver, connection, loaded, [TEXT], [("a",)])
    assert rows_of(connection, f"SELECT COUNT(*) FROM {loaded}") == [(1,)]
    connection.rollback()
    assert rows_of(connection, f"SELECT COUNT(*) FROM {loaded}") == [(0,)]


def test_many_rows_are_loaded_in_order(autocommit: Any, driver: Driver, loaded: str) -> None:
    load(driver, autocommit, loaded, [KEY, TEXT], ((i, f"name {i}") for i in range(20_000)))
    found = rows_of(autocommit, f"SELECT COUNT(*), MIN(Id), MAX(Id), COUNT(DISTINCT Name) FROM {loaded}")
    assert found == [(20_000, 0, 19_999, 20_000)]


def test_a_missing_table_is_told(autocommit: Any, driver: Driver) -> None:
    error = error_of(lambda: load(driver, autocommit, "dbo.NoSuchTable", [TEXT], [("a",)]))
    assert "NoSuchTable" in str(error)
