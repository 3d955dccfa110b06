"""Requests that clients send as ODBC has them: `{call p (…)}` in a batch, and SET TEXTSIZE."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.fixture
def adds(client: SqlClient) -> SqlClient:
    client.run(
        "CREATE OR ALTER PROCEDURE dbo.adds @a int = 1, @b int = 2, @sum int = NULL OUTPUT AS"
        " SET @sum = @a + @b; SELECT @sum AS total; RETURN 7"
    )
    return client


@pytest.mark.parametrize(
    ("call", "total"),
    [
        ("{call dbo.adds}", 3),
        ("{call dbo.adds()}", 3),
        ("{ CALL [dbo].[adds] (10, -4) }", 6),
        ("{call adds (@b = 5)};", 6),
        ("DECLARE @x int = 30; {call dbo.adds (@x)}", 32),
    ],
)
def test_procedure_is_called_as_odbc_writes_it(adds: SqlClient, call: str, total: int) -> None:
    assert adds.rows(call) == [(total,)]


def test_call_gives_output_parameters_back(adds: SqlClient) -> None:
    assert adds.rows("DECLARE @s int; {call dbo.adds (1, 1, @s OUTPUT)}; SELECT @s * 100") == [(200,)]


@pytest.mark.parametrize(
    "call", ["{call dbo.adds", "{call dbo.adds (1}", "{call}", "{dbo.adds}", "{call dbo.adds (1,)}"]
)
def test_call_that_is_not_closed_is_a_syntax_error(adds: SqlClient, call: str) -> None:
    assert adds.error(call)[0] in (102, 156)


def test_large_values_are_cut_to_the_text_size(client: SqlClient) -> None:
    client.run("CREATE TABLE #long (a varchar(max), b nvarchar(max), c varbinary(max), d varchar(20))")
    client.run("INSERT #long VALUES (REPLICATE('a', 50), REPLICATE(N'ä', 50), 0x0102030405060708, REPLICATE('d', 20))")
    client.run("SET TEXTSIZE 6")
    assert client.rows("SELECT a, b, c, d FROM #long") == [("a" * 6, "ä" * 3, b"\1\2\3\4\5\6", "d" * 20)]
    assert client.rows("SELECT @@TEXTSIZE, LEN(a) FROM #long") == [(6, 50)]
    client.run("SET TEXTSIZE 0")
    assert client.value("SELECT @@TEXTSIZE") == 4096
    assert len(client.value("SELECT REPLICATE(CAST('x' AS varchar(max)), 10000)")) == 4096
    client.run("SET TEXTSIZE -1")
    assert len(client.value("SELECT REPLICATE(CAST('x' AS varchar(max)), 10000)")) == 10000
