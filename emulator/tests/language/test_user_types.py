"""Alias types and table types of variables and parameters."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.fixture
def types(client: SqlClient) -> SqlClient:
    client.script("""
        IF TYPE_ID('dbo.Code') IS NULL
            EXEC ('CREATE TYPE dbo.Code FROM varchar(3) NOT NULL CREATE TYPE Amount FROM decimal(9, 2)')
        IF TYPE_ID('dbo.Lines') IS NULL
            EXEC ('CREATE TYPE dbo.Lines AS TABLE (id int PRIMARY KEY, code dbo.Code, amount Amount DEFAULT 1)')
    """)
    return client


def test_variables_have_the_type_that_an_alias_names(types: SqlClient) -> None:
    assert types.rows("DECLARE @c dbo.Code = 'abcdef', @a Amount = 1.005 SELECT @c, CAST(@a AS varchar(20))") == [
        ("abc", "1.01")
    ]


def test_parameters_may_have_alias_types(types: SqlClient) -> None:
    types.run("CREATE OR ALTER PROCEDURE typed @c dbo.Code, @a dbo.Amount = 2 OUTPUT AS SELECT @c, @a SET @a += 1")
    assert [str(value) for value in types.rows("EXEC typed 'wxyz'")[0]] == ["wxy", "2.00"]
    assert str(types.value("DECLARE @out Amount = 5 EXEC typed 'a', @out OUTPUT SELECT @out")) == "6.00"
    assert types.rows("EXEC sp_executesql N'SELECT @c', N'@c dbo.Code', 'wxyz'") == [("wxy",)]


def test_functions_may_have_alias_types(types: SqlClient) -> None:
    types.run("""CREATE OR ALTER FUNCTION dbo.doubled (@a Amount) RETURNS Amount AS
        BEGIN DECLARE @b dbo.Amount = @a * 2 RETURN @b END""")
    assert str(types.value("SELECT dbo.doubled(1.255)")) == "2.52"


@pytest.mark.parametrize(
    ("batch", "position"),
    [
        ("DECLARE @a int, @b dbo.Missing", 2),
        ("DECLARE @a Missing", 1),
        ("EXEC sp_executesql N'SELECT 1', N'@a Missing', 1", 1),
        ("CREATE PROCEDURE unmade @a int, @b dbo.Missing AS SELECT 1", 2),
        ("CREATE FUNCTION dbo.unmade (@a Missing) RETURNS int AS BEGIN RETURN 1 END", 1),
    ],
)
def test_unknown_type_is_an_error(client: SqlClient, batch: str, position: int) -> None:
    number, message = client.error(batch)
    assert number == 2715
    assert f"Column, parameter, or variable #{position}: Cannot find data type" in message
    assert "issing" in message


def test_variable_of_a_table_type_is_a_table(types: SqlClient) -> None:
    batch = """
        DECLARE @lines dbo.Lines
        INSERT @lines (id, code) VALUES (1, 'a'), (2, 'b')
        UPDATE @lines SET amount = 3 WHERE id = 2
        SELECT id, code, CAST(amount AS float) FROM @lines ORDER BY id"""
    assert types.rows(batch) == [(1, "a", 1.0), (2, "b", 3.0)]
    assert types.error("DECLARE @lines dbo.Lines INSERT @lines (id, code) VALUES (1, 'a'), (1, 'b')")[0] == 2627


def test_tables_are_passed_to_procedures(types: SqlClient) -> None:
    types.run(
        "CREATE OR ALTER PROCEDURE total @lines dbo.Lines READONLY, @least int = 0 AS "
        "SELECT COUNT(*), CAST(SUM(amount) AS float) FROM @lines WHERE id >= @least"
    )
    types.run("CREATE OR ALTER PROCEDURE outer_total @given dbo.Lines READONLY AS EXEC total @lines = @given")
    fill = "DECLARE @l dbo.Lines INSERT @l VALUES (1, 'a', 1), (2, 'b', 2.5) "
    assert types.rows(f"{fill} EXEC total @l") == [(2, 3.5)]
    assert types.rows(f"{fill} EXEC total @least = 2, @lines = @l") == [(1, 2.5)]
    assert types.rows(f"{fill} EXEC outer_total @l") == [(2, 3.5)]
    assert types.rows(f"{fill} EXEC total @l INSERT @l VALUES (3, 'c', 1) EXEC total @l") == [(3, 4.5)]
    assert types.rows("EXEC total") == [(0, None)]
    assert types.rows("EXEC total DEFAULT, 1") == [(0, None)]
    dynamic = "EXEC sp_executesql N'SELECT MAX(id) FROM @t', N'@t dbo.Lines READONLY', @t = @l"
    assert types.rows(f"{fill} {dynamic}") == [(2,)]


def test_prepared_statement_of_a_table_is_described(types: SqlClient) -> None:
    prepare = "DECLARE @h int EXEC sp_prepare @h OUTPUT, N'@l dbo.Lines READONLY, @n int', N'SELECT id FROM @l', 1"
    fill = "DECLARE @l dbo.Lines INSERT @l (id, code) VALUES (7, 'a')"
    results = types.run(f"{prepare} {fill} EXEC sp_execute @h, @l, 1 EXEC sp_unprepare @h")
    assert [rows for rows in results if rows] == [[(7,)]]


def test_missing_value_of_a_table_variable_names_it(client: SqlClient) -> None:
    number, message = client.error("DECLARE @t TABLE (a int NOT NULL) INSERT @t VALUES (NULL)")
    assert number == 515
    assert "table '@t';" in message


def test_passed_table_cannot_be_modified(types: SqlClient) -> None:
    types.run("CREATE OR ALTER PROCEDURE changes @lines dbo.Lines READONLY AS DELETE FROM @lines")
    number, message = types.error("DECLARE @l dbo.Lines EXEC changes @l")
    assert number == 10700
    assert 'The table-valued parameter "@lines" is READONLY and cannot be modified.' in message


@pytest.mark.parametrize("declared", ["@l TABLE (id int)", "@l int = 1"])
def test_table_parameter_takes_its_own_type_only(types: SqlClient, declared: str) -> None:
    types.run("CREATE OR ALTER PROCEDURE strict @lines dbo.Lines READONLY AS SELECT 1")
    assert types.error(f"DECLARE {declared} EXEC strict @l")[0] == 206


def test_types_of_old_scripts_are_types(client: SqlClient) -> None:
    client.run("EXEC sp_addtype ssn, 'varchar(11)', 'NOT NULL'; EXEC sp_addtype 'price', 'decimal(5, 2)'")
    client.run("CREATE TABLE persons (s ssn, a price)")
    shown = "SELECT c.name, t.name, c.max_length, c.is_nullable FROM sys.columns c JOIN sys.types t"
    shown += " ON t.user_type_id = c.user_type_id WHERE c.object_id = OBJECT_ID('persons') ORDER BY c.column_id"
    assert client.rows(shown) == [("s", "ssn", 11, False), ("a", "price", 5, True)]
    assert client.error("EXEC sp_droptype 'ssn'")[1].startswith("Cannot drop. The data type is being used.")
    caught = "SELECT ERROR_NUMBER(), ERROR_SEVERITY(), ERROR_STATE(), ERROR_PROCEDURE()"
    batch = f"BEGIN TRY EXEC sp_droptype 'ssn' END TRY BEGIN CATCH {caught} END CATCH"
    assert client.rows(batch) == [(15180, 16, 1, "sp_droptype")]
    client.run("DROP TABLE persons; EXEC sp_droptype 'ssn'; EXEC sys.sp_droptype price")
    assert client.value("SELECT COUNT(*) FROM sys.types WHERE name IN ('ssn', 'price')") == 0


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("sp_addtype 'twice', 'no_type'", 15036),
        ("sp_addtype 'twice', 'int; DROP TABLE t'", 15036),
        ("sp_addtype 'twice', 'int', 'maybe'", 15600),
        ("sp_addtype 'taken', 'bigint'", 219),
        ("sp_droptype 'absent'", 15036),
        ("sp_addtype 'twice'", 201),
    ],
)
def test_wrong_types_of_old_scripts_are_refused(client: SqlClient, call: str, number: int) -> None:
    client.run("IF TYPE_ID('taken') IS NULL EXEC sp_addtype 'taken', 'int'")
    if number == 15036:
        assert "' does not exist or you do not have permission." in client.error(f"EXEC {call}")[1]
    assert client.error(f"EXEC {call}")[0] == number
