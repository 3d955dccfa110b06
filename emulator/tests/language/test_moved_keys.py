"""Unique keys hold at the end of a statement: rows may take over each other's keys. What stays taken is an error."""

from __future__ import annotations

import pytest

from sql_client import SqlClient

KEYS = {
    "primary key": "CREATE TABLE dbo.moved (id int NOT NULL PRIMARY KEY, v int)",
    "unique constraint": "CREATE TABLE dbo.moved (id int NOT NULL CONSTRAINT UQ_moved UNIQUE, v int)",
    "unique index": "CREATE TABLE dbo.moved (id int NOT NULL, v int); CREATE UNIQUE INDEX ix ON dbo.moved (id DESC)",
    "index with columns": "CREATE TABLE dbo.moved (id int, v int);"
    " CREATE UNIQUE INDEX ix ON dbo.moved (id) INCLUDE (v)",
    "filtered index": "CREATE TABLE dbo.moved (id int, v int);"
    " CREATE UNIQUE INDEX ix ON dbo.moved (id) WHERE id IS NOT NULL",
    "added key": "CREATE TABLE dbo.moved (id int NOT NULL, v int);"
    " ALTER TABLE dbo.moved ADD CONSTRAINT PK_moved PRIMARY KEY (id)",
    "widened key": "CREATE TABLE dbo.moved (id int NOT NULL, v int); CREATE UNIQUE INDEX ix ON dbo.moved (id);"
    " ALTER TABLE dbo.moved ALTER COLUMN id bigint NOT NULL",
}


@pytest.fixture(params=KEYS)
def moved(client: SqlClient, request: pytest.FixtureRequest) -> SqlClient:
    client.script("\nGO\n".join(["DROP TABLE IF EXISTS dbo.moved", *KEYS[request.param].split(";")]))
    client.run("INSERT dbo.moved VALUES (1, 10), (2, 20), (3, 30)")
    return client


def test_every_row_moves_onto_the_key_of_the_next(moved: SqlClient) -> None:
    moved.run("UPDATE dbo.moved SET id = id + 1")
    assert moved.rows("SELECT id, v FROM dbo.moved ORDER BY id") == [(2, 10), (3, 20), (4, 30)]
    moved.run("UPDATE dbo.moved SET id = CASE id WHEN 2 THEN 3 WHEN 3 THEN 2 ELSE id END")
    assert moved.rows("SELECT id, v FROM dbo.moved ORDER BY id") == [(2, 20), (3, 10), (4, 30)]


def test_key_that_is_still_taken_at_the_end_undoes_the_statement(moved: SqlClient) -> None:
    number, message = moved.error("UPDATE dbo.moved SET id = id + 1 WHERE id < 3")
    assert number in (2601, 2627)
    assert message.startswith(("Cannot insert duplicate key row in object 'dbo.moved'", "Violation of "))
    assert "The duplicate key value is (3)." in message
    assert moved.error("INSERT dbo.moved VALUES (8, 1), (8, 2)")[0] == number
    assert moved.rows("SELECT id, v FROM dbo.moved ORDER BY id") == [(1, 10), (2, 20), (3, 30)]


def test_strings_that_differ_in_blanks_only_may_swap(client: SqlClient) -> None:
    client.run("CREATE TABLE named (id int PRIMARY KEY, code varchar(10) UNIQUE)")
    client.run("INSERT named VALUES (1, 'a'), (2, 'b')")
    client.run("UPDATE named SET code = CASE id WHEN 1 THEN 'b ' ELSE 'a ' END")
    assert client.rows("SELECT id, code FROM named ORDER BY id") == [(1, "b "), (2, "a ")]
    assert client.error("UPDATE named SET code = 'a'")[0] == 2627


def test_keys_that_rows_refer_to_move_as_long_as_each_finds_one(client: SqlClient) -> None:
    client.script(
        "CREATE TABLE parents (id int NOT NULL PRIMARY KEY, v int)\nGO\n"
        "CREATE TABLE children (parent int CONSTRAINT FK_parent REFERENCES parents (id))\nGO\n"
        "INSERT parents VALUES (1, 10), (2, 20)\nGO\nINSERT children VALUES (2)"
    )
    client.run("UPDATE parents SET id = 3 - id")
    client.run("UPDATE parents SET id = id + 1")
    assert client.rows("SELECT id, v FROM parents ORDER BY id") == [(2, 20), (3, 10)]
    assert client.error("UPDATE parents SET id = id + 1")[0] == 547
    assert client.error("INSERT parents VALUES (3, 0)")[0] == 2627
    client.run("ALTER TABLE children ALTER COLUMN parent int NOT NULL")
    client.run("UPDATE parents SET id = 5 - id")


def test_table_that_refers_to_itself_moves_its_keys(client: SqlClient) -> None:
    client.run("CREATE TABLE tree (id int NOT NULL PRIMARY KEY, above int REFERENCES tree (id))")
    client.run("INSERT tree VALUES (1, NULL), (2, 1), (3, 2)")
    client.run("UPDATE tree SET id = 4 - id, above = 4 - above")
    assert client.rows("SELECT id, above FROM tree ORDER BY id") == [(1, 2), (2, 3), (3, None)]


def test_keys_from_which_changes_cascade_are_checked_row_by_row_while_they_do(client: SqlClient) -> None:
    client.run("CREATE TABLE sources (id int NOT NULL PRIMARY KEY); INSERT sources VALUES (1), (2)")
    client.run("CREATE TABLE followers (source int CONSTRAINT FK_source REFERENCES sources (id) ON UPDATE CASCADE)")
    client.run("INSERT followers VALUES (2)")
    assert client.error("UPDATE sources SET id = id + 1")[0] == 2627
    client.run("UPDATE sources SET id = 7 WHERE id = 2")
    assert client.rows("SELECT source FROM followers") == [(7,)]
    client.run("ALTER TABLE followers DROP CONSTRAINT FK_source")
    client.run("UPDATE sources SET id = 8 - id")
    assert client.rows("SELECT id FROM sources ORDER BY id") == [(1,), (7,)]


@pytest.mark.parametrize("table", ["#moved", "@moved"])
def test_tables_of_a_session_move_their_keys(client: SqlClient, table: str) -> None:
    declaration = "CREATE TABLE #moved" if table == "#moved" else "DECLARE @moved TABLE"
    batch = f"{declaration} (id int PRIMARY KEY, v int); INSERT {table} VALUES (1, 1), (2, 2);"
    moved = client.rows(f"{batch} UPDATE {table} SET id = id + 1; SELECT id, v FROM {table} ORDER BY id")
    assert moved == [(2, 1), (3, 2)]
    client.run("DROP TABLE IF EXISTS #moved")
    assert client.error(f"{batch} INSERT {table} VALUES (2, 0)")[0] == 2627


def test_merge_moves_a_key_onto_one_that_it_deletes(client: SqlClient) -> None:
    client.run("CREATE TABLE merged (id int NOT NULL PRIMARY KEY, v int); INSERT merged VALUES (1, 10), (2, 20)")
    client.run(
        "MERGE merged AS t USING (VALUES (1), (2), (5)) AS s (id) ON t.id = s.id"
        " WHEN MATCHED AND s.id = 1 THEN UPDATE SET id = 2 WHEN MATCHED THEN DELETE"
        " WHEN NOT MATCHED THEN INSERT VALUES (1, 50);"
    )
    assert client.rows("SELECT id, v FROM merged ORDER BY id") == [(1, 50), (2, 10)]


def test_transaction_goes_on_after_a_key_that_stays_taken(client: SqlClient) -> None:
    client.run("CREATE TABLE kept (id int NOT NULL PRIMARY KEY, v int); INSERT kept VALUES (1, 10), (2, 20)")
    client.run("BEGIN TRAN; UPDATE kept SET v = 11 WHERE id = 1")
    assert client.error("UPDATE kept SET id = 2 WHERE id = 1")[0] == 2627
    client.run("UPDATE kept SET id = 3 - id; COMMIT")
    assert client.rows("SELECT id, v FROM kept ORDER BY id") == [(1, 20), (2, 11)]


def test_trigger_sees_all_rows_moved_and_fires_for_no_statement_that_is_undone(client: SqlClient) -> None:
    client.script(
        "CREATE TABLE watched (id int NOT NULL PRIMARY KEY); CREATE TABLE seen (old int, new int)\nGO\n"
        "CREATE TRIGGER watches ON watched AFTER UPDATE AS INSERT seen"
        " SELECT d.n, i.n FROM (SELECT SUM(id) FROM deleted) d (n), (SELECT SUM(id) FROM inserted) i (n)\nGO\n"
        "INSERT watched VALUES (1), (2), (3)"
    )
    client.run("UPDATE watched SET id = id + 1")
    assert client.error("UPDATE watched SET id = 2 WHERE id = 3")[0] == 2627
    assert client.rows("SELECT old, new FROM seen") == [(6, 9)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE UNIQUE INDEX ignoring ON plain (id) WITH (IGNORE_DUP_KEY = ON)",
        "CREATE UNIQUE INDEX ignoring ON plain (id) WITH IGNORE_DUP_KEY",
        "ALTER TABLE plain ADD UNIQUE (id) WITH (IGNORE_DUP_KEY = ON)",
        "CREATE TABLE #plain (id int PRIMARY KEY WITH (IGNORE_DUP_KEY = ON))",
        "DECLARE @plain TABLE (id int, UNIQUE (id) WITH (IGNORE_DUP_KEY = ON))",
        "ALTER INDEX ix ON plain SET (IGNORE_DUP_KEY = ON)",
        "ALTER INDEX ALL ON plain REBUILD WITH (FILLFACTOR = 80, ignore_dup_key=on)",
        "ALTER TABLE plain REBUILD WITH (IGNORE_DUP_KEY = ON)",
    ],
)
def test_index_that_ignores_duplicates_is_refused_by_name(client: SqlClient, statement: str) -> None:
    client.run("DROP TABLE IF EXISTS plain; CREATE TABLE plain (id int)")
    client.run("CREATE UNIQUE INDEX ix ON plain (id) WITH (IGNORE_DUP_KEY = OFF)")
    client.run("ALTER INDEX ix ON plain SET (IGNORE_DUP_KEY = OFF); ALTER INDEX ix ON plain REBUILD")
    number, message = client.error(statement)
    assert (number, "IGNORE_DUP_KEY" in message) == (49999, True)
