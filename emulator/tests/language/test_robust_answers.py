"""A statement that goes wrong is an error of SQL Server's or a refusal by name, and never costs the connection."""

from __future__ import annotations

import contextlib

import pytest

from emulator_process import Emulator
from sql_client import SqlClient

TABLES = """
CREATE TABLE bases (id int PRIMARY KEY, q int)
CREATE TABLE others (id int, aid int)
GO
CREATE VIEW joined AS SELECT b.id, o.aid FROM bases b JOIN others o ON o.id = b.id
GO
CREATE VIEW grouped AS SELECT id, COUNT(*) AS n FROM bases GROUP BY id
GO
CREATE VIEW united AS SELECT id FROM bases UNION SELECT id FROM others
GO
CREATE VIEW computed AS SELECT id, q + 1 AS n FROM bases
"""


@pytest.fixture(scope="module", autouse=True)
def tables(emulator: Emulator, database: str) -> None:
    with contextlib.closing(emulator.connect_pymssql(database, autocommit=True)) as connection:
        SqlClient(connection).script(TABLES)


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("SELECT SWITCHOFFSET(CAST('0001-01-01 00:00 +00:00' AS datetimeoffset), '-05:00')", 9813),
        ("SELECT SWITCHOFFSET(CAST('9999-12-31 23:00 +00:00' AS datetimeoffset), '+05:00')", 9813),
        ("SELECT SWITCHOFFSET(CAST('2001-01-01 00:00 +00:00' AS datetimeoffset), '+14:01')", 9812),
        ("SELECT TODATETIMEOFFSET('2001-01-01', 900)", 9812),
        ("SELECT CAST('0001-01-01 00:00 +05:00' AS datetimeoffset)", 241),
        ("SELECT GETDATE() AT TIME ZONE 23", 8116),
        ("SELECT GETDATE() AT TIME ZONE '23'", 9820),
        ("SELECT * FROM srv...t", 49999),
        ("UPDATE srv...t SET a = 1", 49999),
        ("DECLARE @c CURSOR; SET @c = missing", 16916),
    ],
)
def test_connection_outlives_the_statement(client: SqlClient, statement: str, number: int) -> None:
    assert client.error(statement)[0] == number
    assert client.value("SELECT 1") == 1


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("CREATE TABLE second (a int CONSTRAINT [pk_of_first] PRIMARY KEY)", 2714),
        ("CREATE TABLE second (a int, CONSTRAINT pk_of_first UNIQUE (a))", 2714),
        ("ALTER TABLE others ADD CONSTRAINT pk_of_first CHECK (id > 0)", 2714),
        ("CREATE UNIQUE CLUSTERED INDEX i ON computed (id)", 49999),
        ("UPDATE joined SET aid = 1", 49999),
        ("INSERT joined (id, aid) VALUES (1, 2)", 49999),
        ("DELETE joined", 4405),
        ("UPDATE grouped SET id = 1", 4403),
        ("UPDATE united SET id = 1", 4426),
        ("UPDATE computed SET n = 1", 4406),
        ("INSERT computed VALUES (1, 2)", 4406),
        ("SELECT -0x42", 8117),
        ("CREATE VIEW of_temporary AS SELECT * FROM #temporary", 4508),
    ],
)
def test_nothing_of_postgresql_is_in_the_message(client: SqlClient, statement: str, number: int) -> None:
    client.run("IF OBJECT_ID('first') IS NULL CREATE TABLE first (a int CONSTRAINT pk_of_first PRIMARY KEY)")
    client.run("CREATE TABLE #temporary (a int)")
    found, message = client.error(statement)
    assert found == number
    assert "relation" not in message
    assert not any(f"[{word}" in message for word in ("42", "55", "0A", "54"))


def test_cursor_variable_refers_to_the_cursor_that_it_is_given(client: SqlClient) -> None:
    results = client.run("""
        DECLARE named CURSOR SCROLL FOR SELECT n FROM (VALUES (1), (2), (3)) v(n) ORDER BY n
        DECLARE @c CURSOR, @d CURSOR
        SET @c = named
        SET @d = @c
        OPEN @c
        FETCH NEXT FROM @c
        FETCH NEXT FROM named
        DEALLOCATE named
        FETCH NEXT FROM @d""")
    assert results == [[(1,)], [(2,)], [(3,)]]
