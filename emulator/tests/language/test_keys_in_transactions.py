"""Unique keys hold from the moment at which they are made, in the transaction that makes them too."""

from __future__ import annotations

import pytest

from sql_client import SqlClient

KEYS = {
    "inline primary key": "CREATE TABLE k (a int PRIMARY KEY, v int)",
    "inline unique": "CREATE TABLE k (a int NULL UNIQUE, v int)",
    "nonclustered primary key": "CREATE TABLE k (a int NOT NULL PRIMARY KEY NONCLUSTERED, v int)",
    "primary key of the table": "CREATE TABLE k (a int NOT NULL, v int, CONSTRAINT PK_k PRIMARY KEY (a DESC))",
    "unique of the table": "CREATE TABLE k (a int NOT NULL, b int NOT NULL DEFAULT 1, v int, UNIQUE (a, b))",
    "inline index": "CREATE TABLE k (a int NOT NULL INDEX ix UNIQUE, v int)",
    "index of the table": "CREATE TABLE k (a int NOT NULL, v int, INDEX ix UNIQUE NONCLUSTERED (a))",
    "added primary key": "CREATE TABLE k (a int NOT NULL, v int); ALTER TABLE k ADD PRIMARY KEY (a)",
    "added unique": "CREATE TABLE k (a int, v int); ALTER TABLE k ADD CONSTRAINT UQ_k UNIQUE (a)",
    "column with a key": "CREATE TABLE k (v int); ALTER TABLE k ADD a int NOT NULL PRIMARY KEY",
    "unique index": "CREATE TABLE k (a int, v int); CREATE UNIQUE INDEX ix ON k (a)",
    "clustered index": "CREATE TABLE k (a int, v int); CREATE UNIQUE CLUSTERED INDEX ix ON k (a)",
    "filtered index": "CREATE TABLE k (a int, v int); CREATE UNIQUE INDEX ix ON k (a) WHERE a > 0",
    "index with columns": "CREATE TABLE k (a int, v int); CREATE UNIQUE INDEX ix ON k (a) INCLUDE (v)",
    "index made again": "CREATE TABLE k (a int, v int); CREATE UNIQUE INDEX ix ON k (v);"
    " CREATE UNIQUE INDEX ix ON k (a) WITH (DROP_EXISTING = ON)",
    "key of text": "CREATE TABLE k (a varchar(9) PRIMARY KEY, v int)",
    "key of text whose case counts": "CREATE TABLE k (a varchar(9) COLLATE Latin1_General_CS_AS PRIMARY KEY, v int)",
    "key of binary text": "CREATE TABLE k (a varchar(9) COLLATE Latin1_General_BIN2 PRIMARY KEY, v int)",
    "computed key": "CREATE TABLE k (a int, v int, c AS a * 2 PERSISTED NOT NULL PRIMARY KEY)",
    "widened key": "CREATE TABLE k (a varchar(5) NOT NULL, v int); CREATE UNIQUE INDEX ix ON k (a);"
    " ALTER TABLE k ALTER COLUMN a varchar(9) NOT NULL",
    "renamed table": "CREATE TABLE j (a int PRIMARY KEY, v int); EXEC sp_rename 'j', 'k'",
    "select into": "SELECT CAST(7 AS int) AS a, 7 AS v INTO k; ALTER TABLE k ADD UNIQUE (a)",
    "emptied": "CREATE TABLE k (a int PRIMARY KEY, v int); INSERT k VALUES (1, 1); TRUNCATE TABLE k",
    "referenced": "CREATE TABLE k (a int PRIMARY KEY, v int); CREATE TABLE child (a int REFERENCES k (a))",
    "no longer referenced": "CREATE TABLE k (a int PRIMARY KEY, v int);"
    " CREATE TABLE child (a int REFERENCES k (a) ON UPDATE CASCADE); DROP TABLE child",
}
WRITES = {
    "values": "INSERT k (a, v) VALUES (1, 10), (1, 11)",
    "two statements": "INSERT k (a, v) VALUES (1, 10); INSERT k (a, v) VALUES (1, 11)",
    "select": "INSERT INTO k (a, v) SELECT 1, value FROM GENERATE_SERIES(1, 3)",
    "update": "INSERT k (a, v) VALUES (1, 10), (2, 20); UPDATE k SET a = 1",
    "merge": "MERGE k USING (VALUES (1, 10), (1, 11)) AS s (a, v) ON 1 = 0"
    " WHEN NOT MATCHED THEN INSERT (a, v) VALUES (s.a, s.v);",
    "output": "INSERT k (a, v) OUTPUT inserted.a VALUES (1, 10), (1, 11)",
}
DUPLICATES = (2601, 2627)


@pytest.fixture
def empty(client: SqlClient) -> SqlClient:
    client.run("DROP TABLE IF EXISTS child, k, j; DROP PROCEDURE IF EXISTS p")
    return client


def most_of_a_key(client: SqlClient) -> int | None:
    return client.value("SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM k GROUP BY a) AS x")  # type: ignore[no-any-return]


@pytest.mark.parametrize("key", KEYS)
def test_key_holds_for_every_write_in_its_own_transaction(empty: SqlClient, key: str) -> None:
    for name, write in WRITES.items():
        empty.run("BEGIN TRAN")
        for statement in KEYS[key].split(";"):
            empty.run(statement)
        number, message = empty.error(write)
        assert number in DUPLICATES, (name, number, message)
        assert most_of_a_key(empty) in (None, 1), name
        empty.run("COMMIT")
        assert empty.error(write)[0] == number
        assert most_of_a_key(empty) in (None, 1), name
        empty.run("DROP TABLE IF EXISTS child, k")


@pytest.mark.parametrize("key", KEYS)
def test_key_holds_in_the_very_batch(empty: SqlClient, key: str) -> None:
    made = KEYS[key].replace("; EXEC", " EXEC")
    assert empty.error(f"BEGIN TRAN; {made}; EXEC('{WRITES['values']}')")[0] in DUPLICATES
    empty.run("COMMIT")
    assert empty.rows("SELECT a FROM k") in ([], [(7,)])


@pytest.mark.parametrize("key", ["ALTER TABLE k ADD PRIMARY KEY (a)", "CREATE UNIQUE INDEX ix ON k (a)"])
def test_key_of_a_table_with_rows_holds(empty: SqlClient, key: str) -> None:
    empty.run("CREATE TABLE k (a int NOT NULL, v int); INSERT k VALUES (1, 1), (2, 2)")
    empty.run(f"BEGIN TRAN; {key}")
    for write in ("INSERT k VALUES (1, 3)", "INSERT k VALUES (3, 3), (3, 4)", "UPDATE k SET a = 2"):
        assert empty.error(write)[0] in DUPLICATES
    empty.run("UPDATE k SET a = a + 1; COMMIT")
    assert empty.rows("SELECT a, v FROM k ORDER BY a") == [(2, 1), (3, 2)]


@pytest.mark.parametrize("taken", ["'A'", "'a '", "N'A  '"])
def test_key_of_text_holds_as_its_collation_compares(empty: SqlClient, taken: str) -> None:
    empty.run("BEGIN TRAN; CREATE TABLE k (a nvarchar(9) PRIMARY KEY, v int); INSERT k VALUES ('a', 1), ('b', 2)")
    assert empty.error(f"INSERT k VALUES ({taken}, 3)")[0] == 2627
    assert empty.error(f"UPDATE k SET a = {taken} WHERE v = 2")[0] == 2627
    empty.run("COMMIT")
    assert empty.rows("SELECT a FROM k ORDER BY a") == [("a",), ("b",)]


def test_key_holds_in_an_implicit_transaction(empty: SqlClient) -> None:
    empty.run("SET IMPLICIT_TRANSACTIONS ON")
    empty.run("CREATE TABLE k (a int PRIMARY KEY, v int)")
    assert empty.error(WRITES["values"])[0] == 2627
    empty.run("COMMIT; SET IMPLICIT_TRANSACTIONS OFF")
    assert empty.rows("SELECT a FROM k") == []


def test_key_holds_after_a_savepoint_and_after_going_back_to_it(empty: SqlClient) -> None:
    empty.run("BEGIN TRAN; CREATE TABLE k (a int PRIMARY KEY, v int NOT NULL); SAVE TRAN s")
    assert empty.error(WRITES["values"])[0] == 2627
    empty.run("CREATE UNIQUE INDEX ix ON k (v)")
    assert empty.error("INSERT k VALUES (1, 1), (2, 1)")[0] == 2601
    empty.run("ROLLBACK TRAN s; INSERT k VALUES (1, 1), (2, 1)")
    assert empty.error("INSERT k VALUES (1, 2)")[0] == 2627
    empty.run("COMMIT")
    assert empty.rows("SELECT a, v FROM k ORDER BY a") == [(1, 1), (2, 1)]


def test_key_that_is_gone_by_a_rollback_does_not_hold(empty: SqlClient) -> None:
    empty.run("CREATE TABLE k (a int NOT NULL, v int)")
    empty.run("BEGIN TRAN; CREATE UNIQUE INDEX ix ON k (a); INSERT k VALUES (1, 1); ROLLBACK")
    empty.run(WRITES["values"])
    empty.run("DELETE k; BEGIN TRAN; CREATE UNIQUE INDEX ix ON k (a); DROP INDEX ix ON k")
    empty.run(WRITES["values"])
    empty.run("COMMIT")
    assert empty.rows("SELECT a FROM k") == [(1,), (1,)]


def test_key_that_a_procedure_makes_holds_in_it(empty: SqlClient) -> None:
    empty.run(f"CREATE PROCEDURE p AS CREATE TABLE k (a int PRIMARY KEY, v int); {WRITES['values']}")
    assert empty.error("BEGIN TRAN; EXEC p")[0] == 2627
    empty.run("COMMIT")
    assert empty.rows("SELECT a FROM k") == []


def test_key_that_a_trigger_makes_holds_in_it(empty: SqlClient) -> None:
    empty.run("CREATE TABLE j (a int)")
    empty.run(f"CREATE TRIGGER t ON j AFTER INSERT AS CREATE TABLE k (a int PRIMARY KEY, v int); {WRITES['values']}")
    assert empty.error("INSERT j VALUES (1)")[0] == 2627
    assert empty.value("SELECT OBJECT_ID('k')") is None


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("table", "made"),
    [
        ("#k", "CREATE TABLE #k (a int PRIMARY KEY, v int);"),
        ("#k", "CREATE TABLE #k (a int, v int); CREATE UNIQUE INDEX ix ON #k (a);"),
        ("##k", "CREATE TABLE ##k (a int, v int, UNIQUE (a));"),
        ("@k", "DECLARE @k TABLE (a int PRIMARY KEY, v int);"),
        ("@k", "DECLARE @k TABLE (a int, v int, INDEX ix UNIQUE (a));"),
    ],
)
def test_key_of_a_table_of_the_session_holds(empty: SqlClient, table: str, made: str, write: str) -> None:
    write = WRITES[write].replace(" k ", f" {table} ")
    number, _ = empty.error(f"BEGIN TRAN; {made} {write}")
    assert number in DUPLICATES
    if table != "@k":
        assert empty.error(write)[0] == number
    empty.run("COMMIT")
    if table != "@k":
        assert empty.error(write)[0] == number
        empty.run(f"DROP TABLE {table}")


def test_key_of_a_table_type_holds(empty: SqlClient) -> None:
    empty.run("CREATE TYPE dbo.kept AS TABLE (a int PRIMARY KEY, v int)")
    assert empty.error("BEGIN TRAN; DECLARE @k dbo.kept; INSERT @k VALUES (1, 10), (1, 11)")[0] == 2627
    empty.run("ROLLBACK")


def test_key_of_the_rows_that_a_function_returns_holds(empty: SqlClient) -> None:
    empty.run(
        "CREATE FUNCTION dbo.doubled(@v int) RETURNS @k TABLE (a int PRIMARY KEY) AS"
        " BEGIN INSERT @k VALUES (@v), (1) RETURN END"
    )
    empty.run("BEGIN TRAN")
    assert empty.rows("SELECT a FROM dbo.doubled(2) ORDER BY a") == [(1,), (2,)]
    assert empty.error("SELECT a FROM dbo.doubled(1)")[0] in DUPLICATES
    empty.run("ROLLBACK")


def test_bulk_load_into_a_key_of_its_own_transaction_fails(empty: SqlClient) -> None:
    empty.run("BEGIN TRAN; CREATE TABLE k (a int PRIMARY KEY, v int)")
    with pytest.raises(Exception, match="Violation of PRIMARY KEY constraint"):
        empty.connection.bulk_copy("k", [(1, 10), (1, 11)])
    empty.run("IF @@TRANCOUNT > 0 COMMIT")
    assert empty.value("SELECT ISNULL(OBJECT_ID('k'), 0)") == 0 or empty.rows("SELECT a FROM k") == []


def test_rows_take_over_keys_in_the_transaction_that_made_them(empty: SqlClient) -> None:
    empty.run("BEGIN TRAN; CREATE TABLE k (a int PRIMARY KEY, v int); INSERT k VALUES (1, 10), (2, 20)")
    empty.run("UPDATE k SET a = 3 - a; UPDATE k SET a = a + 1; COMMIT")
    assert empty.rows("SELECT a, v FROM k ORDER BY a") == [(2, 20), (3, 10)]
