"""Synonyms stand for tables, views, procedures and functions, resolved when they are used."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.fixture
def client(client: SqlClient) -> SqlClient:
    client.script(
        "DROP TABLE IF EXISTS dbo.stock; DROP SYNONYM IF EXISTS dbo.goods\nGO\n"
        "CREATE TABLE dbo.stock (id int IDENTITY PRIMARY KEY, name varchar(20) UNIQUE, n int DEFAULT 0)\nGO\n"
        "CREATE SYNONYM dbo.goods FOR dbo.stock\nGO\nINSERT dbo.stock (name) VALUES ('a'), ('b')"
    )
    return client


def test_table_is_read_and_changed_through_its_synonym(client: SqlClient) -> None:
    client.run("INSERT goods (name, n) VALUES ('c', 3); UPDATE dbo.goods SET n = 1 WHERE name = 'a'")
    client.run("DELETE g FROM goods AS g WHERE g.name = 'b'")
    client.run(
        "MERGE goods AS t USING (VALUES ('c'), ('d')) AS s (name) ON t.name = s.name"
        " WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT (name) VALUES (s.name);"
    )
    assert client.rows("SELECT goods.name, dbo.goods.n FROM dbo.goods ORDER BY goods.id") == [
        ("a", 1),
        ("c", 4),
        ("d", 0),
    ]
    assert client.rows("SELECT name FROM dbo.stock ORDER BY id") == [("a",), ("c",), ("d",)]
    assert client.rows("INSERT goods (name) OUTPUT inserted.name VALUES ('e')") == [("e",)]
    assert client.value("SELECT SCOPE_IDENTITY()") is not None


def test_error_of_a_key_names_the_table(client: SqlClient) -> None:
    number, message = client.error("INSERT goods (name) VALUES ('a')")
    assert (number, "object 'dbo.stock'" in message) == (2627, True)


def test_synonym_means_what_is_there_when_it_is_used(client: SqlClient) -> None:
    client.run("CREATE SYNONYM dbo.later FOR dbo.not_yet")
    number, message = client.error("SELECT * FROM dbo.later")
    assert (number, "refers to an invalid object" in message) == (5313, True)
    client.run("CREATE TABLE dbo.not_yet (id int); INSERT dbo.not_yet VALUES (1)")
    assert client.rows("SELECT * FROM dbo.later") == [(1,)]
    client.run("DROP TABLE dbo.not_yet; CREATE TABLE dbo.not_yet (name varchar(5))")
    client.run("INSERT dbo.later VALUES ('x')")
    assert client.rows("SELECT later.name FROM later") == [("x",)]
    client.run("DROP SYNONYM dbo.later")
    assert client.error("SELECT * FROM dbo.later")[0] == 208


def test_table_of_another_database_has_a_synonym(client: SqlClient) -> None:
    client.run("CREATE DATABASE Afar")
    home = client.value("SELECT DB_NAME()")
    client.run("USE Afar")
    client.run(f"CREATE TABLE dbo.far (id int); INSERT dbo.far VALUES (5); USE {home}")
    client.run("CREATE SYNONYM dbo.far FOR Afar.dbo.far")
    assert client.rows("SELECT id FROM far") == [(5,)]
    client.run("DROP SYNONYM far; USE master; DROP DATABASE Afar")


def test_programs_are_called_through_their_synonyms(client: SqlClient) -> None:
    client.script(
        "CREATE PROCEDURE dbo.twice @n int AS SELECT 2 * @n\nGO\nCREATE SYNONYM dbo.double FOR dbo.twice\nGO\n"
        "CREATE FUNCTION dbo.half (@n int) RETURNS int AS BEGIN RETURN @n / 2 END\nGO\n"
        "CREATE SYNONYM dbo.halved FOR dbo.half\nGO\n"
        "CREATE FUNCTION dbo.cheap (@n int) RETURNS TABLE AS RETURN SELECT name FROM dbo.stock WHERE n <= @n\nGO\n"
        "CREATE SYNONYM dbo.low FOR dbo.cheap"
    )
    assert client.rows("EXEC dbo.[double] 21") == [(42,)]
    assert client.value("SELECT dbo.halved(42)") == 21
    assert client.rows("SELECT name FROM dbo.low(0) ORDER BY name") == [("a",), ("b",)]


def test_synonym_is_in_the_catalog_and_its_name_is_taken(client: SqlClient) -> None:
    shown = client.rows("SELECT name, base_object_name, type_desc FROM sys.synonyms WHERE name = 'goods'")
    assert shown == [("goods", "[dbo].[stock]", "SYNONYM")]
    assert client.error("CREATE SYNONYM dbo.goods FOR dbo.stock")[0] == 2714
    assert client.error("CREATE TABLE dbo.goods (id int)")[0] == 2714
    assert client.error("DROP SYNONYM dbo.nothing")[0] == 3701
    client.run("DROP SYNONYM IF EXISTS dbo.nothing")


@pytest.mark.parametrize(
    "statement", ["DROP TABLE dbo.goods", "ALTER TABLE dbo.goods ADD x int", "TRUNCATE TABLE dbo.goods"]
)
def test_ddl_does_not_resolve_a_synonym(client: SqlClient, statement: str) -> None:
    assert client.error(statement)[0] in (3701, 4902, 4701)
    assert client.value("SELECT COUNT(*) FROM dbo.stock") == 2
