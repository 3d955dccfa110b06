"""T-SQL that published scripts and frameworks send, and that is easily taken for a mistake."""

from __future__ import annotations

import contextlib

import pytest

from emulator_process import Emulator
from sql_client import SqlClient

TABLES = """
CREATE TABLE parents (id int, n int)
CREATE TABLE others (c int)
CREATE TABLE numbered (id int IDENTITY, b int DEFAULT 4)
INSERT parents VALUES (1, 2), (2, 0)
INSERT others VALUES (1)
"""


@pytest.fixture(autouse=True)
def tables(emulator: Emulator, database: str) -> None:
    with contextlib.closing(emulator.connect_pymssql(database, autocommit=True)) as connection:
        SqlClient(connection).script("DROP TABLE IF EXISTS parents, others, numbered" + TABLES)


def test_merge_inserts_default_values(client: SqlClient) -> None:
    merge = "MERGE numbered t USING (SELECT 1 AS x) s ON 1 = 0 WHEN NOT MATCHED THEN INSERT DEFAULT VALUES"
    assert client.rows(f"{merge} OUTPUT inserted.id;") == [(1,)]
    client.run(f"{merge};")
    assert client.rows("SELECT * FROM numbered") == [(1, 4), (2, 4)]


@pytest.mark.parametrize("name", ["others", "dbo.others", "published_scripts..others", "#others", "..others"])
@pytest.mark.parametrize(("alias", "shown"), [("", "c"), ("o", "o.c"), ("AS o", "o.c")])
def test_apply_takes_a_table(client: SqlClient, name: str, alias: str, shown: str) -> None:
    client.run("SELECT c INTO #others FROM others")
    for kind in ("CROSS", "OUTER"):
        query = f"SELECT p.id, {shown} FROM parents p {kind} APPLY {name} {alias} ORDER BY p.id"
        assert client.rows(query) == [(1, 1), (2, 1)]
    client.run("DELETE others DELETE #others")
    assert client.rows(f"SELECT p.id, {shown} FROM parents p OUTER APPLY {name} {alias} ORDER BY p.id") == [
        (1, None),
        (2, None),
    ]


def test_changes_apply_a_query_to_their_own_rows(client: SqlClient) -> None:
    less = "CROSS APPLY (SELECT 7 AS e FROM others WHERE others.c < p.n) q"
    client.run(f"UPDATE p SET n = q.e FROM parents p {less}")
    assert client.rows("SELECT id, n FROM parents ORDER BY id") == [(1, 7), (2, 0)]
    client.run(f"UPDATE parents SET n = 8 FROM parents {less.replace('p.n', 'parents.n')}")
    assert client.rows("SELECT id, n FROM parents ORDER BY id") == [(1, 8), (2, 0)]
    assert client.rows(f"DELETE p OUTPUT deleted.id FROM parents p {less}") == [(1,)]
    assert client.rows("SELECT id FROM parents") == [(2,)]


@pytest.mark.parametrize("kind", ["TABLE computed", "TABLE #computed"])
def test_case_needs_no_parentheses_in_a_column(client: SqlClient, kind: str) -> None:
    name = kind.partition(" ")[2]
    client.run("DROP TABLE IF EXISTS computed")
    client.run(
        f"CREATE {kind} (h int NULL, s AS CASE WHEN h IS NOT NULL THEN 'x' ELSE NULL END PERSISTED,"
        " d int DEFAULT CASE WHEN 1 IS NULL THEN 5 ELSE 6 END NOT NULL)"
    )
    client.run(f"INSERT {name} (h) VALUES (1), (NULL)")
    assert client.rows(f"SELECT * FROM {name} ORDER BY h DESC") == [(1, "x", 6), (None, None, 6)]
    assert client.error(f"INSERT {name} (h, d) VALUES (1, NULL)")[0] == 515


def test_table_variable_has_computed_columns(client: SqlClient) -> None:
    batch = "DECLARE @T TABLE (a int, c AS a + 1, CHECK (a > 0)) INSERT @t (a) VALUES (1) SELECT * FROM @t"
    assert client.rows(batch) == [(1, 2)]


def test_variable_of_the_server_is_the_default_of_a_parameter(client: SqlClient) -> None:
    client.run("CREATE OR ALTER PROC p @s nvarchar(128) = @@SERVERNAME, @i int = @@SPID AS SELECT @s, @i")
    assert client.rows("EXEC p") == client.rows("SELECT @@SERVERNAME, @@SPID")
    assert client.rows("EXEC p @s = 'a', @i = 5") == [("a", 5)]
    client.run("CREATE OR ALTER PROC q @i int = @@IDENTITY AS SELECT @i")
    assert client.error("EXEC q")[0] == 49999
    assert client.error("CREATE FUNCTION f (@i int = @@SPID) RETURNS int AS BEGIN RETURN @i END")[0] == 49999


@pytest.mark.parametrize("having", ["", "HAVING COUNT(*) > 1"])
def test_exists_of_groups_may_select_everything(client: SqlClient, having: str) -> None:
    condition = f"EXISTS (SELECT * FROM parents GROUP BY n {having})"
    assert client.value(f"IF {condition} SELECT 1 ELSE SELECT 0") == (0 if having else 1)
    assert client.value(f"SELECT COUNT(*) FROM others WHERE NOT {condition}") == (1 if having else 0)


def test_name_may_begin_with_empty_parts(client: SqlClient) -> None:
    client.run("CREATE OR ALTER PROC ..p AS SELECT 1")
    assert client.value("EXEC ..p") == 1
    client.run("CREATE TABLE ..made (a int) INSERT ..made VALUES (1) DROP TABLE ..made")
    # What go-mssqldb announces its rows with.
    client.run("INSERT BULK ..others (c int)")


def test_type_that_is_not_there_is_refused_by_name(client: SqlClient) -> None:
    for statement in ("SELECT CAST('/' AS hierarchyid)", "DECLARE @h hierarchyid", "CREATE TABLE h (h hierarchyid)"):
        assert client.error(statement)[0] == 49999
    assert client.error("SELECT CAST('/' AS nothing)")[0] == 243


@pytest.mark.parametrize("name", ["#nullable", "nullable"])
def test_nullable_key_names_its_table(client: SqlClient, name: str) -> None:
    number, message = client.error(f"CREATE TABLE {name} (a int NULL PRIMARY KEY)")
    assert number == 8111
    assert f"in table '{name}'." in message
