"""Blanks at the end of a string in unique keys and in ORDER BY."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.mark.parametrize("type", ["varchar(10)", "nvarchar(10)", "char(10)"])
def test_blanks_at_the_end_do_not_make_another_primary_key(client: SqlClient, type: str) -> None:
    client.run(f"DROP TABLE IF EXISTS keyed; CREATE TABLE keyed (code {type} NOT NULL CONSTRAINT PK_keyed PRIMARY KEY)")
    client.run("INSERT keyed VALUES ('abc')")
    number, message = client.error("INSERT keyed VALUES ('abc  ')")
    assert number == 2627
    assert (
        "Violation of PRIMARY KEY constraint 'PK_keyed'. Cannot insert duplicate key in object 'dbo.keyed'." in message
    )
    assert client.rows("SELECT COUNT(*) FROM keyed") == [(1,)]


def test_blanks_at_the_end_do_not_make_another_unique_key(client: SqlClient) -> None:
    client.run("CREATE TABLE pairs (a int, b varchar(10), CONSTRAINT UQ_pairs UNIQUE (a, b))")
    client.run("INSERT pairs VALUES (1, 'x'), (2, 'x'), (1, NULL)")
    number, message = client.error("INSERT pairs VALUES (1, 'x ')")
    assert (number, "UNIQUE KEY constraint 'UQ_pairs'" in message) == (2627, True)
    assert client.error("INSERT pairs VALUES (1, NULL)")[0] == 2627


def test_unique_index_ignores_blanks_under_its_own_name(client: SqlClient) -> None:
    client.run("CREATE TABLE indexed (id int, name nvarchar(20), active bit)")
    client.run("CREATE UNIQUE INDEX IX_name ON indexed (name) WHERE active = 1")
    client.run("INSERT indexed VALUES (1, N'a', 1), (2, N'a ', 0)")
    number, message = client.error("INSERT indexed VALUES (3, N'a ', 1)")
    assert (number, "unique index 'IX_name'" in message) == (2601, True)
    client.run("EXEC sp_rename 'dbo.indexed.IX_name', 'IX_other', 'INDEX'")
    assert "unique index 'IX_other'" in client.error("UPDATE indexed SET active = 1 WHERE id = 2")[1]
    client.run("DROP INDEX IX_other ON indexed")
    client.run("UPDATE indexed SET active = 1 WHERE id = 2")


def test_dropped_key_no_longer_ignores_blanks(client: SqlClient) -> None:
    client.run("CREATE TABLE freed (name varchar(10) NOT NULL CONSTRAINT PK_freed PRIMARY KEY)")
    client.run("INSERT freed VALUES ('a')")
    client.run("ALTER TABLE freed DROP CONSTRAINT PK_freed")
    client.run("INSERT freed VALUES ('a ')")
    assert client.error("ALTER TABLE freed ADD CONSTRAINT UQ_freed UNIQUE (name)")[0] == 1505


def test_temp_tables_and_table_variables_ignore_blanks_in_keys(client: SqlClient) -> None:
    client.run("CREATE TABLE #keyed (name varchar(10) PRIMARY KEY)")
    assert client.error("INSERT #keyed VALUES ('a'), ('a ')")[0] == 2627
    assert (
        client.error("DECLARE @keyed TABLE (name varchar(10) PRIMARY KEY) INSERT @keyed VALUES ('a'), ('a ')")[0]
        == 2627
    )


def test_order_goes_on_with_the_next_key_where_strings_differ_in_blanks_only(client: SqlClient) -> None:
    client.run("CREATE TABLE lines (id int, name varchar(10))")
    client.run("INSERT lines VALUES (1, 'a '), (2, 'a'), (3, 'a  '), (4, 'b')")
    for query in (
        "SELECT id, name FROM lines ORDER BY name, id",
        "SELECT id, name FROM lines ORDER BY 2, 1",
        "SELECT id, name AS n FROM lines ORDER BY n, id",
        "SELECT id FROM lines ORDER BY name, id",
        "SELECT id FROM lines ORDER BY UPPER(name), id",
        "SELECT id, name FROM lines UNION ALL SELECT 5, 'c' ORDER BY name, id",
        "SELECT d.id FROM (SELECT id, name FROM lines) AS d ORDER BY d.name, d.id",
    ):
        assert [row[0] for row in client.rows(query)][:4] == [1, 2, 3, 4], query
    assert [row[0] for row in client.rows("SELECT id FROM lines ORDER BY name DESC, id DESC")] == [4, 3, 2, 1]


def test_ties_are_strings_that_differ_in_blanks_only(client: SqlClient) -> None:
    client.run("CREATE TABLE tied (id int, name varchar(10))")
    client.run("INSERT tied VALUES (1, 'a '), (2, 'a'), (3, 'b')")
    assert sorted(client.rows("SELECT TOP (1) WITH TIES id FROM tied ORDER BY name")) == [(1,), (2,)]
