"""Table variables over several calls and depths: each scope finds its own, empty and counting from the start."""

from __future__ import annotations

from sql_client import SqlClient


def test_every_call_has_an_empty_table_whose_identity_starts_again(client: SqlClient) -> None:
    client.run("""
        CREATE PROCEDURE counted @rows int AS
        DECLARE @t TABLE (id int IDENTITY(10, 5) PRIMARY KEY, v varchar(5) UNIQUE)
        INSERT @t (v) SELECT TOP (@rows) v FROM (VALUES ('a'), ('b'), ('c')) AS x (v) ORDER BY v
        SELECT id, v FROM @t ORDER BY id""")
    assert client.rows("EXEC counted 3") == [(10, "a"), (15, "b"), (20, "c")]
    assert client.rows("EXEC counted 1") == [(10, "a")]
    assert client.rows("EXEC counted 2") == [(10, "a"), (15, "b")]


def test_many_rows_are_gone_at_the_next_call(client: SqlClient) -> None:
    client.run("""
        CREATE PROCEDURE filled @rows int AS
        DECLARE @t TABLE (id int, filler char(200))
        INSERT @t SELECT value, 'x' FROM GENERATE_SERIES(1, @rows)
        SELECT COUNT(*) FROM @t""")
    assert [client.value(f"EXEC filled {rows}") for rows in (5000, 3, 5000, 0)] == [5000, 3, 5000, 0]


def test_same_name_with_other_columns_is_another_table(client: SqlClient) -> None:
    client.run("CREATE PROCEDURE one AS DECLARE @t TABLE (a int) INSERT @t VALUES (1) SELECT * FROM @t")
    client.run("CREATE PROCEDURE two AS DECLARE @t TABLE (a int, b int) INSERT @t VALUES (1, 2) SELECT * FROM @t")
    assert client.run("EXEC one EXEC two EXEC one") == [[(1,)], [(1, 2)], [(1,)]]


def test_each_depth_of_a_recursion_has_its_own(client: SqlClient) -> None:
    client.run("""
        CREATE PROCEDURE nested @depth int AS
        DECLARE @t TABLE (depth int)
        INSERT @t VALUES (@depth)
        IF @depth < 3 BEGIN DECLARE @next int = @depth + 1 EXEC nested @next END
        SELECT depth FROM @t""")
    assert client.run("EXEC nested 1") == [[(3,)], [(2,)], [(1,)]]
    assert client.run("EXEC nested 2") == [[(3,)], [(2,)]]


def test_rollback_that_takes_the_table_away_costs_no_later_call(client: SqlClient) -> None:
    client.run("CREATE PROCEDURE held AS DECLARE @t TABLE (a int PRIMARY KEY) INSERT @t VALUES (1) SELECT a FROM @t")
    assert client.run("BEGIN TRANSACTION EXEC held ROLLBACK EXEC held EXEC held") == [[(1,)]] * 3
    assert client.run("EXEC held BEGIN TRANSACTION EXEC held ROLLBACK EXEC held") == [[(1,)]] * 3


def test_error_in_a_procedure_leaves_an_empty_table_to_the_next(client: SqlClient) -> None:
    client.run("""
        CREATE PROCEDURE failing @divisor int AS
        DECLARE @t TABLE (a int)
        INSERT @t VALUES (1)
        INSERT @t VALUES (1 / @divisor)
        SELECT COUNT(*) FROM @t""")
    client.error("EXEC failing 0")
    assert client.value("EXEC failing 1") == 2


def test_triggers_see_the_columns_that_the_table_has_now(client: SqlClient) -> None:
    client.script("""
        CREATE TABLE watched (a int)
        CREATE TABLE seen (names nvarchar(200))
        GO
        CREATE TRIGGER watch ON watched AFTER INSERT AS
        INSERT seen SELECT (SELECT * FROM inserted FOR JSON PATH, WITHOUT_ARRAY_WRAPPER)
        GO
        INSERT watched VALUES (1)
        ALTER TABLE watched ADD b int
        GO
        INSERT watched VALUES (2, 3)
        ALTER TABLE watched DROP COLUMN a
        GO
        INSERT watched VALUES (4)""")
    assert client.rows("SELECT names FROM seen") == [('{"a":1}',), ('{"a":2,"b":3}',), ('{"b":4}',)]


def test_trigger_sees_the_rows_of_its_own_statement_only(client: SqlClient) -> None:
    client.script("""
        CREATE TABLE counted_rows (a int)
        CREATE TABLE counts (n int)
        GO
        CREATE TRIGGER count_rows ON counted_rows AFTER INSERT AS INSERT counts SELECT COUNT(*) FROM inserted
        GO
        INSERT counted_rows VALUES (1), (2), (3)
        INSERT counted_rows SELECT value FROM GENERATE_SERIES(1, 20000)
        INSERT counted_rows VALUES (4)
        BEGIN TRANSACTION
        INSERT counted_rows VALUES (5), (6)
        ROLLBACK
        INSERT counted_rows VALUES (7)""")
    assert client.rows("SELECT n FROM counts") == [(3,), (20000,), (1,), (1,)]


def test_insert_exec_reports_the_first_error(client: SqlClient) -> None:
    client.run("CREATE TABLE target (id int CONSTRAINT PK_target PRIMARY KEY)")
    number, message = client.error("INSERT target EXEC ('SELECT value % 4000 FROM GENERATE_SERIES(1, 9000)')")
    assert (number, "PK_target" in message) == (2627, True)
    assert client.value("SELECT COUNT(*) FROM target") == 0
