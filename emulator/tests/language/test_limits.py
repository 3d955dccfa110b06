"""Limits of SQL Server that PostgreSQL does not have, or has elsewhere: rows, columns, bytes, parameters."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


def test_values_of_an_insert_have_a_thousand_rows_at_most(client: SqlClient) -> None:
    client.run("CREATE TABLE filled (a int)")
    rows = [f"({number})" for number in range(1001)]
    client.run(f"INSERT filled VALUES {', '.join(rows[:1000])}")
    assert client.value("SELECT COUNT(*) FROM filled") == 1000
    assert client.error(f"INSERT filled VALUES {', '.join(rows)}")[0] == 10738
    # Rows of different forms are another path.
    assert client.error(f"INSERT filled VALUES (1 + 1), {', '.join(rows)}")[0] == 10738
    assert client.value(f"SELECT COUNT(*) FROM (VALUES {', '.join(rows)}) AS v (a)") == 1001


def test_table_has_1024_columns_at_most(client: SqlClient) -> None:
    columns = [f"c{number} bit" for number in range(1025)]
    number, message = client.error(f"CREATE TABLE wide ({', '.join(columns)})")
    assert (number, "column 'c1024' in table 'wide'" in message) == (1702, True)
    client.run(f"CREATE TABLE wide ({', '.join(columns[:1024])})")
    number, message = client.error("ALTER TABLE wide ADD more int")
    assert (number, message.startswith("ALTER TABLE failed because column 'more'")) == (1702, True)


@pytest.mark.parametrize(
    ("columns", "bytes_"),
    [
        ("a char(8000), b char(8000)", 16007),
        ("a char(8000), b char(54)", 8061),
        ("a nchar(4000), b datetime2, c decimal(38), d uniqueidentifier, e time(0), f bigint, g bit", 8060),
        ("a nchar(4000), b datetime2, c decimal(38), d uniqueidentifier, e time(0), f bigint, g bit, h bit", 8060),
    ],
)
def test_row_that_cannot_fit_a_page_is_refused(client: SqlClient, columns: str, bytes_: int) -> None:
    if bytes_ <= 8060:
        client.run(f"CREATE TABLE #fits ({columns})")
        return
    number, message = client.error(f"CREATE TABLE too_long ({columns})")
    assert number == 1701
    assert f"would be {bytes_}, including 7 bytes of internal overhead" in message
    assert client.error(f"CREATE TABLE #too_long ({columns})")[0] == 1701
    assert client.error(f"DECLARE @too_long TABLE ({columns})")[0] == 1701


def test_row_grown_by_alter_table_is_refused(client: SqlClient) -> None:
    client.run("CREATE TABLE growing (a char(8000))")
    assert client.error("ALTER TABLE growing ADD b char(60)")[0] == 1701
    client.run("ALTER TABLE growing ADD b varchar(8000), c varchar(max), d text, e xml, f sysname, g AS a + a")


def test_call_and_procedure_have_2100_parameters_at_most(client: SqlClient) -> None:
    declared = ", ".join(f"@p{number} int" for number in range(2101))
    given = ", ".join("1" for _ in range(2101))
    assert client.error(f"EXEC sp_executesql N'SELECT 1', N'{declared}', {given}")[0] == 180
    number, message = client.error(f"CREATE PROCEDURE takes_many {declared} AS SELECT 1")
    assert number == 180
    assert message.startswith(
        "There are too many parameters in this CREATE/ALTER PROCEDURE statement. The maximum number is"
    )


def test_backslash_at_the_end_of_a_line_continues_a_string(client: SqlClient) -> None:
    assert client.value("SELECT 'abc\\\ndef'") == "abcdef"
    assert client.value("SELECT N'abc\\\r\ndef' + '\\'") == "abcdef\\"
    assert client.value("DECLARE @a varchar(20) = 'a\\\nb' SELECT @a") == "ab"
    assert client.value("EXEC ('SELECT ''a\\\nb''')") == "ab"
    assert client.value("SELECT 'a\\\\\n\nb'") == "a\\\nb"
    client.run("CREATE TABLE #texts (a varchar(20)); INSERT #texts VALUES ('a\\\nb'), ('c\\d'), ('e\nf')")
    assert client.rows("SELECT a FROM #texts") == [("ab",), ("c\\d",), ("e\nf",)]


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("SELECT TRY_CAST(4 AS xml)", 529),
        ("SELECT TRY_CONVERT(xml, GETDATE())", 529),
        ("SELECT CAST(1.5 AS text)", 529),
        ("SELECT CAST(NEWID() AS ntext)", 529),
        ("SELECT CAST(CAST('<a/>' AS xml) AS int)", 529),
        ("SELECT CONVERT(datetime, CAST('2020-01-01' AS text))", 529),
        ("CREATE TABLE #large (x xml); INSERT #large VALUES (4)", 206),
        ("CREATE TABLE #large (x text); INSERT #large SELECT CAST(4 AS int)", 206),
    ],
)
def test_large_types_are_made_of_strings_only(client: SqlClient, statement: str, number: int) -> None:
    assert client.error(statement)[0] == number
    assert client.rows("SELECT CAST('<a/>' AS xml), TRY_CAST(0x61 AS varchar(5)), CAST(NULL AS xml)") == [
        ("<a/>", "a", None)
    ]
