"""sp_help and sp_helpindex, and EXEC of a scalar function."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


@pytest.fixture
def described(client: SqlClient) -> SqlClient:
    client.script(
        "IF OBJECT_ID('dbo.details') IS NOT NULL DROP TABLE dbo.details; DROP TABLE IF EXISTS dbo.heads\nGO\n"
        "CREATE TABLE dbo.heads (id int IDENTITY(5, 2) CONSTRAINT PK_heads PRIMARY KEY, code char(4) NOT NULL"
        " CONSTRAINT UQ_code UNIQUE, note nvarchar(20), n decimal(9, 2) CONSTRAINT DF_n DEFAULT 1,"
        " twice AS n * 2, CONSTRAINT CK_n CHECK (n > 0))\nGO\n"
        "CREATE INDEX IX_note ON dbo.heads (note DESC, n) INCLUDE (code)\nGO\n"
        "CREATE TABLE dbo.details (head int CONSTRAINT FK_head REFERENCES dbo.heads (id) ON DELETE CASCADE)"
    )
    return client


def test_sp_helpindex_lists_indexes_with_their_keys(described: SqlClient) -> None:
    assert described.rows("EXEC sp_helpindex N'dbo.heads'") == [
        ("IX_note", "nonclustered located on PRIMARY", "note(-), n"),
        ("PK_heads", "clustered, unique, primary key located on PRIMARY", "id"),
        ("UQ_code", "nonclustered, unique, unique key located on PRIMARY", "code"),
    ]
    assert described.run("EXEC sp_helpindex 'details'") == []
    assert described.error("EXEC sp_helpindex 'nothing'")[0] == 15009


def test_sp_help_of_a_table_lists_its_columns_identity_indexes_and_constraints(described: SqlClient) -> None:
    head, columns, identity, guid, place, indexes, constraints, referencing = described.run("EXEC sp_help 'dbo.heads'")
    assert head[0][:3] == ("heads", "dbo", "user table")
    assert [row[:7] for row in columns] == [
        ("id", "int", "no", 4, "10   ", "0    ", "no"),
        ("code", "char", "no", 4, "     ", "     ", "no"),
        ("note", "nvarchar", "no", 40, "     ", "     ", "yes"),
        ("n", "decimal", "no", 5, "9    ", "2    ", "yes"),
        ("twice", "decimal", "yes", 9, "11   ", "2    ", "yes"),
    ]
    assert columns[1][7:9] == ("no", "no")
    assert [tuple(map(str, row)) for row in identity] == [("id", "5", "2", "0")]
    assert guid == [("No rowguidcol column defined.",)]
    assert place == [("PRIMARY",)]
    assert [row[0] for row in indexes] == ["IX_note", "PK_heads", "UQ_code"]
    assert [(row[0], row[1], row[6]) for row in constraints] == [
        ("CHECK Table Level ", "CK_n", "([n]>(0))"),
        ("DEFAULT on column n", "DF_n", "((1))"),
        ("PRIMARY KEY (clustered)", "PK_heads", "id"),
        ("UNIQUE (non-clustered)", "UQ_code", "code"),
    ]
    assert [row[0].partition(".")[2] for row in referencing] == ["dbo.details: FK_head"]


def test_sp_help_lists_a_foreign_key_with_what_it_refers_to(described: SqlClient) -> None:
    constraints = described.run("EXEC sp_help details")[-1]
    assert constraints[0] == ("FOREIGN KEY", "FK_head", "Cascade", "No Action", "Enabled", "Is_For_Replication", "head")
    assert constraints[1][6].endswith(".dbo.heads (id)")


def test_sp_help_of_other_objects(described: SqlClient) -> None:
    described.run("CREATE OR ALTER PROCEDURE dbo.helped @a int, @b nvarchar(10) AS RETURN 0")
    head, parameters = described.run("sp_help helped")
    assert head[0][2] == "stored procedure"
    assert [row[:3] for row in parameters] == [("@a", "int", None), ("@b", "nvarchar", 20)]
    assert ("heads", "dbo", "user table") in described.rows("EXEC sp_help")
    assert described.error("EXEC sp_help nothing")[0] == 15009


def test_scalar_function_is_executed_into_a_variable(client: SqlClient) -> None:
    client.run(
        "CREATE OR ALTER FUNCTION dbo.joined (@a int, @b varchar(10) = 'x') RETURNS varchar(20) AS"
        " BEGIN RETURN CAST(@a AS varchar(10)) + @b END"
    )
    exec_ = "DECLARE @r varchar(20) EXEC @r = dbo.joined {} SELECT @r"
    assert client.value(exec_.format("1, 'y'")) == "1y"
    assert client.value(exec_.format("@b = 'z', @a = 2")) == "2z"
    assert client.value(exec_.format("3")) == "3x"
    assert client.value(exec_.format("4, DEFAULT")) == "4x"
    assert client.value(exec_.format("NULL")) is None
    assert client.error(exec_.format(""))[0] == 201
    assert client.error(exec_.format("1, 'a', 2"))[0] == 8144
    client.run("EXEC dbo.joined 1, 'y'")
