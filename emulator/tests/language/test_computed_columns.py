"""Computed columns over conversions: which are deterministic, and none over another."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.mark.parametrize(
    ("type_", "style", "text", "shown"),
    [
        ("datetime2(7)", 126, "2020-01-02T03:04:05.1234567", "2020-01-02 03:04:05.1234567"),
        ("datetime2(3)", 120, "2020-01-02 03:04:05", "2020-01-02 03:04:05.000"),
        ("datetime", 126, "2020-01-02T03:04:05.123", "2020-01-02 03:04:05.123"),
        ("smalldatetime", 20, "2020-01-02 03:04:05", "2020-01-02 03:04:00"),
        ("date", 112, "20200102", "2020-01-02"),
        ("date", 103, "02/01/2020", "2020-01-02"),
        ("time(2)", 21, "03:04:05.12", "03:04:05.12"),
        ("datetimeoffset(3)", 127, "2020-01-02T03:04:05.123+02:00", "2020-01-02 03:04:05.123 +02:00"),
    ],
)
def test_conversion_in_a_settled_style_is_deterministic(
    client: SqlClient, type_: str, style: int, text: str, shown: str
) -> None:
    client.script(f"""
        DROP TABLE IF EXISTS settled
        CREATE TABLE settled (x varchar(40), c AS CONVERT({type_}, x, {style}),
            t AS TRY_CONVERT({type_}, x, {style}) PERSISTED, y AS CONCAT('', CONVERT({type_}, x, {style})))
        GO
        ALTER TABLE settled ADD later AS TRY_CONVERT({type_}, x, {style})
        GO
        INSERT settled (x) VALUES ('{text}')""")
    as_text = ", ".join(f"CONVERT(varchar(40), {column}, 121)" for column in ("c", "t", "later"))
    if type_ == "smalldatetime":
        shown += ".000"
    assert client.rows(f"SELECT {as_text} FROM settled") == [(shown, shown, shown)]
    assert client.error("INSERT settled (x) VALUES ('no date')")[0] == 241


def test_delivery_time_of_an_invoice_is_read_from_its_document(client: SqlClient) -> None:
    """WideWorldImporters' Sales.Invoices."""
    client.run("""
        CREATE TABLE invoices (id int PRIMARY KEY, document nvarchar(max) NULL,
            confirmed AS TRY_CONVERT(datetime2(7), JSON_VALUE(document, N'$.DeliveredWhen'), 126))""")
    client.run("""INSERT invoices VALUES (1, N'{"DeliveredWhen": "2016-05-31T07:05:00"}'), (2, N'{}'), (3, NULL),
        (4, N'{"DeliveredWhen": "soon"}')""")
    rows = client.rows("SELECT id, CONVERT(varchar(19), confirmed, 126) FROM invoices ORDER BY id")
    assert rows == [(1, "2016-05-31T07:05:00"), (2, None), (3, None), (4, None)]


@pytest.mark.parametrize(
    "expression",
    [
        "CONVERT(datetime2(7), x)",
        "CONVERT(datetime2(7), x, 0)",
        "CONVERT(datetime, x, 106)",
        "CONVERT(date, x, 113)",
        "CONVERT(date, x, s)",
        "TRY_CONVERT(date, x, 100)",
        "CAST(x AS date)",
        "GETDATE()",
    ],
)
def test_expression_that_depends_on_settings_is_refused_by_name(client: SqlClient, expression: str) -> None:
    number, message = client.error(f"CREATE TABLE unsettled (x varchar(40), s int, y AS {expression})")
    assert number == 49999
    assert "computed columns whose value changes by itself" in message


@pytest.mark.parametrize(
    "columns",
    [
        "x int, y AS x + 1, z AS y + 1",
        "x int, z AS [Y] + 1, y AS x + 1",
        "x int, y AS y + 1",
        "x int, y AS x + 1 PERSISTED, z AS CASE WHEN x > 0 THEN y END",
    ],
)
def test_computed_column_over_another_is_1759(client: SqlClient, columns: str) -> None:
    number, message = client.error(f"CREATE TABLE over_another ({columns})")
    assert number == 1759
    expected = (
        "Computed column 'y' in table 'over_another' is not allowed to be used in another computed-column definition."
    )
    assert expected in message


def test_added_column_over_a_computed_one_is_1759(client: SqlClient) -> None:
    client.run("CREATE TABLE grown (x int, y AS x + 1)")
    assert client.error("ALTER TABLE grown ADD z AS y * 2")[0] == 1759
    client.run("ALTER TABLE grown ADD z AS x * 2")
