"""An application's schema script, run batch by batch as sqlcmd would, and the application on top of it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from emulator_process import Emulator
from sql_client import SqlClient

SCRIPT = (Path(__file__).parent / "scripts" / "shop.sql").read_text("utf-8")


@pytest.fixture(scope="module", autouse=True)
def shop(database: str, emulator: Emulator) -> None:
    connection = emulator.connect_pymssql(database, autocommit=True)
    SqlClient(connection).script(SCRIPT)
    connection.close()


def place(client: SqlClient, lines: str) -> list[tuple[object, ...]]:
    return client.rows(
        f"DECLARE @id int, @status int; EXEC @status = sales.PlaceOrder 1, '{lines}', @id OUTPUT; SELECT @status, @id"
    )


def test_the_script_runs_a_second_time(client: SqlClient) -> None:
    client.script(SCRIPT)
    assert client.value("SELECT COUNT(*) FROM sales.Product") == 2


def test_an_order_is_placed_priced_and_taken_from_stock(client: SqlClient) -> None:
    ((status, order),) = place(client, "1:100, 2:1")
    assert status == 0
    rows = client.rows(f"SELECT Customer, Total, Computed FROM sales.OpenOrders WHERE OrderID = {order}")
    assert rows == [("First", Decimal("25.00"), Decimal("25.00"))]
    assert client.rows(f"SELECT Total, Lines FROM sales.OrdersOf(1) WHERE OrderID = {order}") == [(Decimal("25.00"), 2)]
    client.run(f"DELETE FROM sales.OrderLine WHERE OrderID = {order} AND ProductID = 1")
    assert client.value(f"SELECT Total FROM sales.[Order] WHERE OrderID = {order}") == Decimal("15.00")


def test_an_order_beyond_the_stock_leaves_nothing_but_a_line_in_the_log(client: SqlClient) -> None:
    before = client.value("SELECT COUNT(*) FROM sales.[Order]")
    number, message = client.error("EXEC sales.PlaceOrder 1, '2:50'")
    assert (number, "Out of stock." in message) == (50000, True)
    assert client.value("SELECT COUNT(*) FROM sales.[Order]") == before
    assert client.value("SELECT TOP 1 What FROM dbo.Log_ ORDER BY LogID DESC") == "Out of stock."


def test_an_unknown_customer_is_a_return_code(client: SqlClient) -> None:
    assert client.rows("DECLARE @s int; EXEC @s = sales.PlaceOrder 99, '1:1'; SELECT @s") == [(1,)]


def test_orders_are_shipped_by_a_cursor(client: SqlClient) -> None:
    place(client, "1:1")
    waiting = client.value("SELECT COUNT(*) FROM sales.OpenOrders")
    assert client.rows("DECLARE @n int; EXEC @n = sales.ShipOrders; SELECT @n") == [(waiting,)]


def test_constraints_of_the_script_hold(client: SqlClient) -> None:
    assert client.error("UPDATE hr.Employee SET Salary = -1")[0] == 547
    assert client.error("UPDATE hr.Employee SET Mail = N'ase@shop.test'")[0] == 2601
    assert client.error("INSERT sales.Customer (Code, Name) VALUES ('C00001', N'x')")[0] == 2627
    assert client.rows("SELECT DISTINCT FullName, IsActive FROM hr.Employee WHERE LastName = N'Berg'") == [
        ("Åse Berg", True)
    ]
    client.run("BEGIN TRAN; DELETE FROM hr.Department WHERE Name = N'Sales'")
    assert client.value("SELECT COUNT(*) FROM hr.Employee") == 1
    client.run("ROLLBACK")


def test_defaults_inside_larger_expressions_are_computed(client: SqlClient) -> None:
    rows = client.rows("SELECT DISTINCT Region, CASE WHEN CreatedAt < SYSUTCDATETIME() THEN 1 END FROM sales.Customer")
    assert rows == [("NORTH", 1)]
