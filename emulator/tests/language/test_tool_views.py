"""System views that tools ask for to draw a database, and those of before SQL Server 2005."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sqlserver_emulator
from sql_client import SqlClient

SOURCE = Path(sqlserver_emulator.__file__).parent / "engine/sql/sys_views_tools.sql"
TEXT = SOURCE.read_text("utf-8")
VIEWS = re.findall(r"CREATE VIEW emulator_sys\.(\w+) AS", TEXT) + re.findall(r"^        \('(\w+)', '", TEXT, re.M)
OBJECTS = """
CREATE TABLE drawn (id int PRIMARY KEY, q int CONSTRAINT default_of_q DEFAULT 1 CHECK (q > 0))
GO
CREATE VIEW drawn_view AS SELECT id FROM drawn
GO
CREATE PROCEDURE drawn_procedure @a int, @b varchar(20) = 'x' OUTPUT AS SELECT 1
GO
CREATE FUNCTION drawn_function(@x decimal(10, 2)) RETURNS nvarchar(30) AS BEGIN RETURN 'x' END
GO
CREATE SEQUENCE drawn_sequence AS bigint START WITH 5
CREATE TYPE drawn_type AS TABLE (a int)
"""


@pytest.fixture
def drawn(client: SqlClient) -> SqlClient:
    if client.value("SELECT OBJECT_ID('drawn')") is None:
        client.script(OBJECTS)
    return client


@pytest.mark.parametrize("view", VIEWS)
def test_view_answers(client: SqlClient, view: str) -> None:
    client.run(f"SELECT * FROM sys.{view}")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT name FROM sysobjects WHERE xtype = 'U' AND id = OBJECT_ID('drawn')", [("drawn",)]),
        ("SELECT name FROM dbo.syscolumns WHERE id = OBJECT_ID('drawn') ORDER BY colid", [("id",), ("q",)]),
        ("SELECT COUNT(*) FROM sys.sysindexes WHERE id = OBJECT_ID('drawn')", [(1,)]),
        ("SELECT name FROM master..sysdatabases WHERE name = 'master'", [("master",)]),
        ("SELECT COUNT(*) FROM syscomments WHERE id = OBJECT_ID('drawn_view')", [(1,)]),
        ("SELECT name FROM sys.stats WHERE object_id = OBJECT_ID('drawn') AND stats_id > 1", []),
        ("SELECT name, type_desc FROM sys.database_files WHERE type = 1", [("tool_views_log", "LOG")]),
        ("SELECT name, is_user_defined FROM sys.table_types", [("drawn_type", True)]),
        ("SELECT name FROM sys.types WHERE is_table_type = 1", [("drawn_type",)]),
        ("SELECT host_platform FROM sys.dm_os_host_info", [("Linux",)]),
        (
            "SELECT p.name, p.parameter_id, TYPE_NAME(p.user_type_id), p.is_output FROM sys.parameters p"
            " WHERE p.object_id = OBJECT_ID('drawn_procedure') ORDER BY p.parameter_id",
            [("@a", 1, "int", False), ("@b", 2, "varchar", True)],
        ),
        (
            "SELECT PARAMETER_NAME, PARAMETER_MODE, DATA_TYPE, NUMERIC_PRECISION, CHARACTER_MAXIMUM_LENGTH"
            " FROM INFORMATION_SCHEMA.PARAMETERS WHERE SPECIFIC_NAME = 'drawn_function' ORDER BY ORDINAL_POSITION",
            [("", "OUT", "nvarchar", None, 30), ("@x", "IN", "decimal", 10, None)],
        ),
        ("SELECT SEQUENCE_NAME, DATA_TYPE FROM INFORMATION_SCHEMA.SEQUENCES", [("drawn_sequence", "bigint")]),
        (
            "SELECT OBJECT_NAME(referencing_id), referenced_schema_name, referenced_entity_name"
            " FROM sys.sql_expression_dependencies WHERE referenced_id = OBJECT_ID('drawn')",
            [("drawn_view", "dbo", "drawn")],
        ),
        ("SELECT VIEW_NAME, TABLE_NAME FROM INFORMATION_SCHEMA.VIEW_TABLE_USAGE", [("drawn_view", "drawn")]),
    ],
)
def test_view_shows_what_is_there(drawn: SqlClient, query: str, expected: list[tuple[object, ...]]) -> None:
    assert drawn.rows(query) == expected


def test_changed_procedure_shows_its_new_parameters(client: SqlClient) -> None:
    client.script(
        "CREATE PROCEDURE changing @a int AS SELECT 1\nGO\nALTER PROCEDURE changing @b int, @c int AS SELECT 1"
    )
    names = client.rows("SELECT name FROM sys.parameters WHERE object_id = OBJECT_ID('changing') ORDER BY parameter_id")
    assert names == [("@b",), ("@c",)]


def test_columns_of_every_check_are_listed(client: SqlClient) -> None:
    client.run("DROP TABLE IF EXISTS checked")
    client.run("CREATE TABLE checked (a int, b int, c int CONSTRAINT one CHECK (c > 1), CONSTRAINT two CHECK (a > b))")
    client.run("ALTER TABLE checked ADD CONSTRAINT later CHECK (b > 0)")
    query = "SELECT CONSTRAINT_NAME, COLUMN_NAME FROM INFORMATION_SCHEMA.CONSTRAINT_COLUMN_USAGE"
    assert client.rows(f"{query} WHERE TABLE_NAME = 'checked' ORDER BY 1, 2") == [
        ("later", "b"),
        ("one", "c"),
        ("two", "a"),
        ("two", "b"),
    ]


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("propertied", "TableHasClustIndex=1 TableHasNonclustIndex=1 TableHasIndex=1 TableHasForeignKey=0"),
        ("propertied", "TableHasForeignRef=1 TableHasCheckCnst=1 TableHasDefaultCnst=1 TableHasUniqueCnst=1"),
        ("propertied", "TableHasRowGuidCol=0 TableHasTimestamp=1 TableIsMemoryOptimized=0 IsConstraint=0"),
        ("child", "TableHasForeignKey=1 TableHasForeignRef=0 TableHasIndex=0 TableHasUniqueCnst=0"),
        ("pk_p", "CnstIsClustKey=0 CnstIsNonclustKey=1 IsConstraint=1 IsForeignKey=0"),
        ("uq_p", "CnstIsClustKey=1 CnstIsNonclustKey=0 IsUniqueCnst=1"),
        ("fk_c", "CnstIsDeleteCascade=1 CnstIsUpdateCascade=0 CnstIsDisabled=0 IsForeignKey=1 CnstIsClustKey=0"),
        ("ck_p", "CnstIsDisabled=1 CnstIsNotTrusted=1 IsCheckCnst=1"),
        ("program", "ExecIsQuotedIdentOn=1 ExecIsAnsiNullsOn=1 IsExecuted=1 TableHasIndex=None"),
    ],
)
def test_objects_have_their_properties(client: SqlClient, name: str, answers: str) -> None:
    client.script("""
        DROP TABLE IF EXISTS child, propertied
        CREATE TABLE propertied (id int CONSTRAINT pk_p PRIMARY KEY NONCLUSTERED,
            u int CONSTRAINT uq_p UNIQUE CLUSTERED, d int DEFAULT 1 CONSTRAINT ck_p CHECK (d > 0), v rowversion)
        ALTER TABLE propertied NOCHECK CONSTRAINT ck_p
        CREATE TABLE child (p int CONSTRAINT fk_c REFERENCES propertied (id) ON DELETE CASCADE)
        GO
        CREATE OR ALTER PROC program AS SELECT 1""")
    for answer in answers.split():
        asked, _, expected = answer.partition("=")
        assert str(client.value(f"SELECT OBJECTPROPERTY(OBJECT_ID('{name}'), '{asked}')")) == expected, asked


def test_property_that_is_not_there_is_refused(client: SqlClient) -> None:
    client.run("DROP TABLE IF EXISTS child, propertied; CREATE TABLE propertied (id int)")
    assert client.error("SELECT OBJECTPROPERTY(OBJECT_ID('propertied'), 'TableHasInsertTrigger')")[0] == 49999
    assert client.value("SELECT OBJECTPROPERTY(OBJECT_ID('propertied'), 'TableHasNothing')") is None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT contained_availability_group_id FROM sys.dm_exec_sessions",
        "SELECT local_net_address FROM sys.dm_exec_connections WHERE session_id = @@SPID",
        "SELECT name FROM sys.service_queues WHERE is_ms_shipped = 0",
    ],
)
def test_columns_that_clients_ask_for_are_there(client: SqlClient, query: str) -> None:
    assert set(client.rows(query)) <= {(None,), ("127.0.0.1",)}


def test_inventories_learn_of_databases_and_version(client: SqlClient) -> None:
    rows = client.rows("EXEC sp_databases")
    assert [row[0] for row in rows] == [name for (name,) in client.rows("SELECT name FROM sys.databases ORDER BY name")]
    assert all(size > 0 for _, size, _ in rows)
    version = client.value("SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128))")
    major = int(version.partition(".")[0])
    assert client.rows("EXEC master..xp_msver 'ProductVersion'") == [(2, "ProductVersion", major << 16, version)]
    assert client.error("EXEC xp_msver 'FileVersion'")[0] == 49999
