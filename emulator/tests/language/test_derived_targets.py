"""UPDATE and DELETE through common table expressions, derived tables and views."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.fixture(autouse=True)
def people(client: SqlClient) -> None:
    client.run(
        """
        DROP TABLE IF EXISTS dbo.Orders; DROP TABLE IF EXISTS dbo.People
        CREATE TABLE dbo.People (id int NOT NULL PRIMARY KEY, name varchar(20), email varchar(20), visits int)
        CREATE TABLE dbo.Orders (id int NOT NULL PRIMARY KEY, person int, total int)
        INSERT INTO dbo.People
        VALUES (1, 'Ann', 'a@x', 1), (2, 'Ann', 'a@x', 5), (3, 'Bob', 'b@x', 2), (4, 'Ann', 'a@y', 9)
        INSERT INTO dbo.Orders VALUES (10, 1, 100), (11, 3, 200)
        """
    )


def ids(client: SqlClient) -> list[int]:
    return [row[0] for row in client.rows("SELECT id FROM dbo.People ORDER BY id")]


def test_duplicates_are_deleted_by_their_row_number(client: SqlClient) -> None:
    client.run(
        "WITH d AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY name, email ORDER BY visits DESC) AS rn FROM dbo.People) "
        "DELETE FROM d WHERE rn > 1"
    )
    assert ids(client) == [2, 3, 4]


def test_an_update_numbers_rows_through_a_cte_with_renamed_columns(client: SqlClient) -> None:
    client.run(
        "WITH n (person, v, place) AS (SELECT id, visits, ROW_NUMBER() OVER (ORDER BY id DESC) FROM dbo.People) "
        "UPDATE n SET v = place * 10 WHERE person <> 3"
    )
    assert client.rows("SELECT id, visits FROM dbo.People ORDER BY id") == [(1, 40), (2, 30), (3, 2), (4, 10)]


def test_the_first_rows_of_an_order_are_taken_as_from_a_queue(client: SqlClient) -> None:
    rows = client.rows(
        "WITH q AS (SELECT TOP (2) * FROM dbo.People ORDER BY visits DESC) DELETE FROM q "
        "OUTPUT deleted.id, deleted.name"
    )
    assert sorted(rows) == [(2, "Ann"), (4, "Ann")]
    assert client.run("WITH q AS (SELECT * FROM dbo.People) DELETE TOP (1) FROM q; SELECT @@ROWCOUNT") == [[(1,)]]


def test_a_joined_cte_changes_the_table_whose_column_is_set(client: SqlClient) -> None:
    client.run(
        "WITH j AS (SELECT p.visits, o.total FROM dbo.People AS p JOIN dbo.Orders AS o ON o.person = p.id) "
        "UPDATE j SET visits = visits + total"
    )
    assert client.rows("SELECT id, visits FROM dbo.People ORDER BY id") == [(1, 101), (2, 5), (3, 202), (4, 9)]
    assert (
        client.error(
            "WITH j AS (SELECT p.id FROM dbo.People AS p JOIN dbo.Orders AS o ON o.person = p.id) DELETE FROM j"
        )[0]
        == 4405
    )


def test_a_cte_over_a_cte_and_a_derived_table_are_changed(client: SqlClient) -> None:
    client.run(
        "WITH a AS (SELECT * FROM dbo.People WHERE name = 'Ann'), b AS (SELECT id, visits FROM a WHERE visits > 1) "
        "UPDATE b SET visits += 1"
    )
    client.run("DELETE d FROM (SELECT id, COUNT(*) OVER (PARTITION BY name) AS n FROM dbo.People) AS d WHERE d.n = 1")
    assert client.rows("SELECT id, visits FROM dbo.People ORDER BY id") == [(1, 1), (2, 6), (4, 10)]


def test_the_first_rows_of_a_join_are_changed(client: SqlClient) -> None:
    client.run("UPDATE TOP (1) p SET visits = 0 FROM dbo.People AS p JOIN dbo.Orders AS o ON o.person = p.id")
    assert client.value("SELECT COUNT(*) FROM dbo.People WHERE visits = 0 AND id IN (1, 3)") == 1
    client.run("DELETE TOP (2) p FROM dbo.People AS p LEFT JOIN dbo.Orders AS o ON o.person = p.id WHERE o.id IS NULL")
    assert ids(client) == [1, 3]


def test_a_query_that_groups_is_not_updatable(client: SqlClient) -> None:
    number, _ = client.error("WITH g AS (SELECT name FROM dbo.People GROUP BY name) DELETE FROM g")
    assert number == 4403
    number, _ = client.error("WITH g AS (SELECT id, visits + 1 AS v FROM dbo.People) UPDATE g SET v = 1")
    assert number == 207


def test_a_view_of_one_table_is_changed(client: SqlClient) -> None:
    client.script(
        """
        CREATE VIEW dbo.Anns AS SELECT id AS person, visits FROM dbo.People WHERE name = 'Ann'
        GO
        UPDATE dbo.Anns SET visits = 0 WHERE person = 4
        DELETE FROM dbo.Anns WHERE person = 1
        """
    )
    assert client.rows("SELECT id, visits FROM dbo.People ORDER BY id") == [(2, 5), (3, 2), (4, 0)]
