"""Errors of statements that the server does not take, and the limits of names and strings."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.mark.parametrize("batch", ["SELECT FROM t", "SELECT DISTINCT FROM t WHERE a = 1"])
def test_syntax_error_near_a_reserved_word_names_the_keyword(client: SqlClient, batch: str) -> None:
    number, message = client.error(batch)
    assert number == 156
    assert "Incorrect syntax near the keyword '" in message


@pytest.mark.parametrize(
    ("word", "query"),
    [
        ("Percent", "SELECT 1 AS Percent"),
        ("percent", "SELECT 1 percent"),
        ("Over", "SELECT 1 AS Over, 2 AS b"),
        ("Key", "SELECT 1 AS a FROM sys.objects AS Key"),
        ("Plan", "SELECT 1 AS a FROM sys.objects Plan"),
        ("Rule", "WITH Rule AS (SELECT 1 AS a) SELECT a FROM Rule"),
        ("Public", "SELECT a FROM (SELECT 1 AS a) AS Public"),
        ("User", "SELECT (SELECT 1 AS User) AS a"),
    ],
)
def test_reserved_word_is_no_name_without_brackets(client: SqlClient, word: str, query: str) -> None:
    number, message = client.error(query)
    assert number == 156
    assert f"Incorrect syntax near the keyword '{word}'." in message
    client.run(query.replace(word, f"[{word}]"))


def test_words_that_are_not_reserved_are_names(client: SqlClient) -> None:
    assert client.rows("SELECT 1 AS Date, 2 AS Type, 3 AS Value, 4 AS Level FROM (SELECT 1 AS Name) AS Language") == [
        (1, 2, 3, 4)
    ]
    assert client.rows('SELECT TOP 50 PERCENT a AS "Percent" FROM (VALUES (1), (1)) AS [Values](a)') == [(1,)]


_ROWS = "FROM (VALUES (1), (2)) AS v(x)"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT SUM(SUM(x) OVER ()) OVER () {_ROWS}",
        f"SELECT SUM(ROW_NUMBER() OVER (ORDER BY x)) OVER () {_ROWS}",
        f"SELECT SUM(x) OVER (ORDER BY SUM(x) OVER ()) {_ROWS}",
        f"SELECT SUM(x) OVER (PARTITION BY ROW_NUMBER() OVER (ORDER BY x)) {_ROWS}",
        f"SELECT SUM(SUM(x) OVER ()) {_ROWS}",
    ],
)
def test_window_in_a_window_or_an_aggregate_is_4109(client: SqlClient, query: str) -> None:
    number, message = client.error(query)
    assert number == 4109
    assert "Windowed functions cannot be used in the context of another windowed function or aggregate." in message


@pytest.mark.parametrize(
    "clause", ["WHERE {}", "GROUP BY {}", "GROUP BY x HAVING {}", "AS v JOIN (VALUES (1)) w(y) ON {}"]
)
def test_window_outside_select_and_order_by_is_4108(client: SqlClient, clause: str) -> None:
    window = "ROW_NUMBER() OVER (ORDER BY x)"
    condition = clause.format(window if clause == "GROUP BY {}" else f"{window} = 1")
    query = f"SELECT COUNT(*) FROM (SELECT 1 AS x) {condition if 'JOIN' in clause else 'AS v ' + condition}"
    number, message = client.error(query)
    assert number == 4108
    assert "Windowed functions can only appear in the SELECT or ORDER BY clauses." in message


def test_window_of_an_aggregate_is_taken(client: SqlClient) -> None:
    assert client.rows(f"SELECT SUM(SUM(x)) OVER () {_ROWS}") == [(3,)]
    assert client.rows(f"SELECT SUM(n) OVER () FROM (SELECT ROW_NUMBER() OVER (ORDER BY x) AS n {_ROWS}) AS w") == [
        (3,),
        (3,),
    ]


@pytest.mark.parametrize("name", ["{0}", "[{0}]", '"{0}"', "#{0}"])
def test_name_of_more_than_128_characters_is_refused(client: SqlClient, name: str) -> None:
    number, message = client.error(f"CREATE TABLE {name.format('n' * 129)} (a int)")
    assert number == 103
    assert "is too long. Maximum length is 128." in message


def test_name_of_128_characters_is_taken(client: SqlClient) -> None:
    name = "n" * 126
    client.run(f"CREATE TABLE [{name}]]x] (a int) DROP TABLE [{name}]]x]")
    assert len(f"@{name}x") == 128
    assert client.value(f"DECLARE @{name}x int = 1 SELECT @{name}x") == 1


def test_reconfigure_with_override_is_taken(client: SqlClient) -> None:
    assert client.rows("RECONFIGURE WITH OVERRIDE SELECT 1") == [(1,)]
    assert client.rows("RECONFIGURE; RECONFIGURE WITH OVERRIDE; SELECT 2") == [(2,)]


def test_strings_end_at_8000_characters(client: SqlClient) -> None:
    assert client.rows("SELECT DATALENGTH(SPACE(2147483647)), SPACE(-1)") == [(8000, None)]
    assert client.value("SELECT LEN(REPLICATE('abc', 2147483647))") == 8000
    assert client.value("SELECT LEN(REPLICATE(N'abc', 2147483647))") == 4000
    assert client.value("SELECT LEN(REPLICATE(CAST('abc' AS varchar(max)), 10000))") == 30000


@pytest.mark.parametrize("order", ["name", "UPPER(name)"])
def test_order_by_an_unknown_collation_is_refused_by_name(client: SqlClient, order: str) -> None:
    query = f"SELECT name FROM sys.objects ORDER BY {order} COLLATE {{}}"
    number, message = client.error(query.format("Japanese_CI_AS"))
    assert (number, "Japanese_CI_AS" in message) == (49999, True)
    client.run(query.format("Latin1_General_BIN2"))


def test_bulk_load_goes_past_an_instead_of_trigger(client: SqlClient) -> None:
    client.script("""
        CREATE TABLE loaded (a int)
        CREATE TABLE instead (a int)
        GO
        CREATE TRIGGER load_instead ON loaded INSTEAD OF INSERT AS INSERT instead SELECT a FROM inserted""")
    client.connection.bulk_copy("loaded", [(1,), (2,)])
    assert client.rows("SELECT a FROM loaded ORDER BY a") == [(1,), (2,)]
    assert client.rows("SELECT a FROM instead") == []
    client.run("INSERT loaded VALUES (3)")
    assert client.rows("SELECT a FROM loaded ORDER BY a") == [(1,), (2,)]
    assert client.rows("SELECT a FROM instead") == [(3,)]
