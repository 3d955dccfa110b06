"""SET DATEFORMAT ymd, which mssql-django sends with each connection."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.mark.parametrize(
    ("text", "mdy", "ymd"),
    [
        ("01/02/03", "2003-01-02", "2001-02-03"),
        ("99-12-3", None, "1999-12-03"),
        ("12.31.99 10:20", "1999-12-31", None),
        ("2003-01-02", "2003-01-02", "2003-01-02"),
        ("2003/1/2 10:20", "2003-01-02", "2003-01-02"),
        ("030102", "2003-01-02", "2003-01-02"),
        ("20030102", "2003-01-02", "2003-01-02"),
        ("Jan 2 2003", "2003-01-02", "2003-01-02"),
        ("none1", None, None),
    ],
)
@pytest.mark.parametrize("type_name", ["date", "datetime", "datetime2", "datetimeoffset"])
def test_order_is_that_of_years_with_two_digits(
    client: SqlClient, type_name: str, text: str, mdy: str | None, ymd: str | None
) -> None:
    query = f"SELECT CONVERT(varchar(10), TRY_CAST('{text}' AS {type_name}), 23)"
    assert client.value(query) == mdy
    client.run("SET DATEFORMAT ymd")
    assert client.value(query) == ymd


@pytest.mark.parametrize("text", ["12/31/2003", "Jan 2 03", "1/2/03"])
def test_order_that_is_not_known_is_refused(client: SqlClient, text: str) -> None:
    client.run("SET DATEFORMAT ymd")
    for function in ("CAST", "TRY_CAST"):
        assert client.error(f"SELECT {function}('{text}' AS datetime)")[0] == 49999


def test_format_ends_with_the_scope_that_set_it(client: SqlClient) -> None:
    texts = client.run(
        "EXEC('SET DATEFORMAT ymd SELECT CONVERT(varchar(10), CAST(''01/02/03'' AS date), 23)') "
        "SELECT CONVERT(varchar(10), CAST('01/02/03' AS date), 23)"
    )
    assert texts == [[("2001-02-03",)], [("2003-01-02",)]]


@pytest.mark.parametrize(("order", "number"), [("abc", 2741), ("dmy", 49999)])
def test_other_orders_are_errors(client: SqlClient, order: str, number: int) -> None:
    assert client.error(f"SET DATEFORMAT {order}")[0] == number
