"""Features that only SQL Server has are refused by name; names that SQL Server lacks too are its own error."""

from __future__ import annotations

import pymssql
import pytest

from sql_client import SqlClient
from sqlserver_emulator.engine.procedures import PROCEDURES as ENGINE_PROCEDURES
from sqlserver_emulator.engine.translate.expressions.functions import FUNCTIONS as TRANSLATED
from sqlserver_emulator.syntax.known_names import FUNCTIONS, PROCEDURES, VARIABLES, VIEWS
from sqlserver_emulator.tsql.catalog.registry import LANGUAGE_PROCEDURES


def number_of(client: SqlClient, batch: str) -> int:
    try:
        client.run(batch)
    except pymssql.Error as error:
        return int(error.args[0])
    return 0


def test_refused_procedures_are_refused_and_none_of_them_is_there(client: SqlClient) -> None:
    assert not PROCEDURES & {*LANGUAGE_PROCEDURES, *ENGINE_PROCEDURES}
    assert {name for name in PROCEDURES if number_of(client, f"EXEC {name}") != 49999} == set()


def test_refused_views_are_refused_and_none_of_them_is_there(client: SqlClient) -> None:
    there = {str(name).lower() for (name,) in client.rows("SELECT name FROM sys.system_views")}
    assert not VIEWS & there
    assert {name for name in VIEWS if number_of(client, f"SELECT * FROM sys.{name}") != 49999} == set()


def test_refused_functions_and_variables_are_refused(client: SqlClient) -> None:
    assert not FUNCTIONS & {*TRANSLATED}
    parsed_apart = {"openxml", "openrowset", "opendatasource", "predict"}
    wrong = {name for name in FUNCTIONS - parsed_apart if number_of(client, f"SELECT {name}(1)") != 49999}
    assert wrong == set()
    assert {name for name in VARIABLES if number_of(client, f"SELECT {name}") != 49999} == set()


@pytest.mark.parametrize(
    "statement",
    [
        "EXEC msdb.dbo.sp_help_jobstep",
        "EXEC master..xp_servicecontrol 'querystate', 'MSSQLSERVER'",
        "SELECT * FROM msdb.dbo.sysalerts",
        "SELECT * FROM sys.dm_exec_sql_text(0x00)",
        "SELECT 1 FROM sys.objects WHERE CONTAINS(name, 'a')",
        "SELECT * FROM sys.objects o CROSS APPLY o.name.nodes('/a') AS n(c)",
        "SELECT * FROM OPENROWSET(BULK 'file', SINGLE_CLOB) AS x",
        "WITH XMLNAMESPACES ('u' AS n) SELECT 1",
        "TRUNCATE TABLE versioned WITH (PARTITIONS (1))",
        "CREATE AGGREGATE refused (@x int) RETURNS int EXTERNAL NAME a.b",
        "SEND ON CONVERSATION '00000000-0000-0000-0000-000000000000' ('x')",
        "SELECT 1; RECEIVE * FROM q1",
        "ADD SIGNATURE TO refused BY CERTIFICATE c",
        "DBCC CHECKDB",
        "ALTER DATABASE SCOPED CONFIGURATION SET IDENTITY_CACHE = OFF",
        "CREATE TABLE refused (a int) AS NODE",
        "CREATE TABLE refused (a int, INDEX i HASH (a) WITH (BUCKET_COUNT = 10))",
        "CREATE TABLE refused (a int PRIMARY KEY NONCLUSTERED HASH WITH (BUCKET_COUNT = 10))",
        "CREATE TYPE refused AS TABLE (a int) WITH (MEMORY_OPTIMIZED = ON)",
        "CREATE TABLE refused (a xml(dbo.collection))",
        "CREATE TABLE refused (a int, f datetime2 GENERATED ALWAYS AS ROW START, u datetime2)",
        "CREATE TABLE refused (a int, PERIOD FOR SYSTEM_TIME (f, u)) WITH (SYSTEM_VERSIONING = ON)",
        "CREATE TABLE refused (a int) WITH (SYSTEM_VERSIONING = ON (HISTORY_TABLE = dbo.history))",
        "ALTER TABLE versioned ADD f datetime2 GENERATED ALWAYS AS ROW START HIDDEN NOT NULL,"
        " u datetime2 GENERATED ALWAYS AS ROW END HIDDEN NOT NULL, PERIOD FOR SYSTEM_TIME (f, u)",
        "ALTER TABLE versioned ADD PERIOD FOR SYSTEM_TIME (f, u)",
        "ALTER TABLE versioned DROP PERIOD FOR SYSTEM_TIME",
        "ALTER TABLE versioned SET (SYSTEM_VERSIONING = OFF)",
        "SELECT * FROM versioned FOR SYSTEM_TIME AS OF '2020-01-01' AS v WHERE a = 1",
        "SELECT * FROM versioned FOR SYSTEM_TIME BETWEEN '2020-01-01' AND '2021-01-01'",
        "SELECT * FROM versioned FOR SYSTEM_TIME FROM '2020-01-01' TO '2021-01-01' JOIN versioned v ON 1 = 1",
        "SELECT * FROM versioned FOR SYSTEM_TIME CONTAINED IN ('2020-01-01', '2021-01-01')",
        "UPDATE v SET a = 1 FROM versioned FOR SYSTEM_TIME ALL AS v",
        "DELETE v FROM versioned FOR SYSTEM_TIME ALL AS v",
        "CREATE VIEW refused AS SELECT * FROM versioned FOR SYSTEM_TIME ALL",
        "CREATE RULE refused AS @value > 3 AND @value IN (SELECT 4)",
        "CREATE DEFAULT refused AS 5",
        "CREATE PROCEDURE refused WITH NATIVE_COMPILATION, SCHEMABINDING AS SELECT 1",
    ],
)
def test_feature_is_refused_by_name(client: SqlClient, statement: str) -> None:
    client.run("IF OBJECT_ID('versioned') IS NULL CREATE TABLE versioned (a int)")
    number, message = client.error(statement)
    assert number == 49999
    assert "does not support" in message


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("EXEC sp_nothing_of_that_name", 2812),
        ("SELECT * FROM sys.nothing_of_that_name", 208),
        ("SELECT * FROM sysjobs_of_mine", 208),
        ("SELECT NOTHING_OF_THAT_NAME(1)", 195),
        ("SELECT @@nothing_of_that_name", 137),
        ("SELECT FROM sys.objects", 156),
    ],
)
def test_name_that_nobody_knows_keeps_its_error(client: SqlClient, statement: str, number: int) -> None:
    assert client.error(statement)[0] == number


def test_table_of_a_user_may_have_a_refused_name(client: SqlClient) -> None:
    client.run("CREATE TABLE messages (a int); INSERT messages VALUES (1)")
    assert client.rows("SELECT a FROM messages") == [(1,)]
