"""sql_variant: properties of the server are values of it, any other value is refused by one name."""

from __future__ import annotations

from typing import Any

import pytest

from sql_client import SqlClient

EDITION = "SERVERPROPERTY('EngineEdition')"
NAMED = "SERVERPROPERTY('InstanceName')"
COLLATION = "SERVERPROPERTY('Collation')"


def number(value: int) -> bytes:
    """An int as pymssql gives it out of a sql_variant."""
    return value.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (EDITION, number(3)),
        (f"ISNULL({EDITION}, 0)", number(3)),
        ("ISNULL(SERVERPROPERTY('NoSuchProperty'), 'none')", b"none"),
        (f"ISNULL({NAMED}, 'MSSQLSERVER')", b"MSSQLSERVER"),
        (f"COALESCE({NAMED}, N'x')", b"x"),
        (f"COALESCE(NULL, {EDITION}, 7)", number(3)),
        (f"CASE WHEN 1 = 1 THEN {EDITION} ELSE 7 END", number(3)),
        (f"IIF(1 = 0, {EDITION}, 7)", number(7)),
        (f"NULLIF({EDITION}, 4)", number(3)),
        (f"NULLIF({EDITION}, 3)", None),
        (f"(SELECT ISNULL(e, N'none') FROM (SELECT {NAMED} AS e) x)", b"none"),
        (f"(SELECT e FROM (SELECT {EDITION} AS e) x)", number(3)),
        (f"(SELECT TOP 1 e FROM (VALUES ({EDITION}), (9)) v(e))", number(3)),
        ("ISNULL(DATABASEPROPERTYEX(DB_NAME(), 'IsAutoClose'), 1)", number(0)),
        ("ISNULL(SESSION_CONTEXT(N'absent'), N'none')", b"none"),
        (f"CAST({EDITION} AS int)", 3),
        (f"CONVERT(nvarchar(9), {EDITION})", "3"),
        (f"ISNULL(CAST({NAMED} AS sysname), 'none')", "none"),
        (f"CASE WHEN {EDITION} = 3 AND {EDITION} > 2 AND {EDITION} < 10 AND {EDITION} IN (1, 3) THEN 1 END", 1),
        (f"CASE WHEN {COLLATION} = N'SQL_Latin1_General_CP1_CI_AS' THEN 1 END", 1),
    ],
)
def test_properties_are_values(client: SqlClient, expression: str, value: Any) -> None:
    assert client.value(f"SELECT {expression}") == value


@pytest.mark.parametrize(
    "batch",
    [
        "SELECT CAST(5 AS sql_variant)",
        "SELECT TRY_CAST('a' AS sql_variant)",
        "SELECT CONVERT(sql_variant, 5)",
        "SELECT CAST(NULL AS sql_variant)",
        "DECLARE @v sql_variant",
        "DECLARE @v sys.sql_variant = 5 SELECT @v",
        "CREATE PROCEDURE of_variants @v sql_variant AS SELECT @v",
        "CREATE PROCEDURE of_variants AS DECLARE @v sql_variant SELECT @v",
        "CREATE FUNCTION of_variants (@v sql_variant) RETURNS int AS BEGIN RETURN 1 END",
        "CREATE FUNCTION of_variants (@v int) RETURNS sql_variant AS BEGIN RETURN 1 END",
        "CREATE TYPE of_variants FROM sql_variant",
        "EXEC sp_executesql N'SELECT @v', N'@v sql_variant', @v = 5",
        "SELECT a FROM OPENJSON('{\"a\": 1}') WITH (a sql_variant)",
        "SELECT SERVERPROPERTY('EngineEdition') AS e INTO of_variants",
        "CREATE TABLE of_variants (a int, b AS SERVERPROPERTY('EngineEdition'))",
        "CREATE TABLE of_variants (a int, b sql_variant DEFAULT 5)",
        "INSERT variants (b) VALUES (5)",
        "INSERT variants (b) SELECT SERVERPROPERTY('EngineEdition')",
        "INSERT variants (b) SELECT e FROM (SELECT SERVERPROPERTY('EngineEdition') AS e) x",
        "UPDATE variants SET b = 'x'",
        "ALTER TABLE variants ALTER COLUMN a sql_variant",
        "DECLARE @t TABLE (b sql_variant) INSERT @t VALUES (5)",
        "SELECT CASE WHEN 1 = 1 THEN SERVERPROPERTY('EngineEdition') ELSE 'x' END",
        "SELECT ISNULL(SERVERPROPERTY('EngineEdition'), 'x')",
        "SELECT e FROM (VALUES (SERVERPROPERTY('EngineEdition')), (SERVERPROPERTY('Collation'))) v(e)",
    ],
)
def test_other_values_are_refused_by_one_name(client: SqlClient, batch: str) -> None:
    client.run("IF OBJECT_ID('variants') IS NULL BEGIN CREATE TABLE variants (a int, b sql_variant) "
        "INSERT variants (a) VALUES (1) END")  # fmt: skip
    number, message = client.error(batch)
    assert number == 49999
    assert "does not support values of the data type sql_variant." in message


def test_columns_of_the_type_have_null(client: SqlClient) -> None:
    client.run("CREATE TABLE of_nulls (a int, b sql_variant, c int) INSERT of_nulls VALUES (1, NULL, NULL)")
    client.run("UPDATE of_nulls SET b = NULL; INSERT of_nulls (a, b) SELECT a, b FROM of_nulls")
    client.run("ALTER TABLE of_nulls ALTER COLUMN c sql_variant NULL; ALTER TABLE of_nulls ADD d sql_variant")
    assert client.rows("SELECT a, b, c, d FROM of_nulls") == [(1, None, None, None)] * 2
    types = "SELECT TYPE_NAME(user_type_id) FROM sys.columns WHERE object_id = OBJECT_ID('of_nulls') ORDER BY column_id"
    assert client.rows(types) == [("int",), ("sql_variant",), ("sql_variant",), ("sql_variant",)]


def test_procedures_of_the_server_take_values_of_the_type(client: SqlClient) -> None:
    client.run("EXEC sp_set_session_context N'key', N'value'")
    assert client.value("SELECT CAST(SESSION_CONTEXT(N'key') AS nvarchar(9))") == "value"
