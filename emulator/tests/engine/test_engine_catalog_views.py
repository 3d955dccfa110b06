"""sys.* and INFORMATION_SCHEMA: their columns, their types, and what they show."""

from __future__ import annotations

import pytest

from engine_client import Client
from sqlserver_emulator.types import SYSNAME, TsqlType

BIT = TsqlType("bit")
INT = TsqlType("int")
GUID = TsqlType("uniqueidentifier")


@pytest.fixture(scope="module", autouse=True)
def tables(module_client: Client) -> None:
    module_client.run(
        "CREATE TABLE dbo.customers (id int IDENTITY(10, 5) NOT NULL CONSTRAINT pk_customers PRIMARY KEY, "
        "name nvarchar(20) NULL,"
        " amount decimal(10, 2) CONSTRAINT df_amount DEFAULT ((1.5)), price money, seen datetime2(3), raw "
        "varbinary(max),"
        " twice AS (amount * 2) PERSISTED, CONSTRAINT ck_amount CHECK (amount > 0));"
        "CREATE TABLE dbo.orders (id int NOT NULL, line int NOT NULL, customer_id int CONSTRAINT "
        "fk_customer REFERENCES dbo.customers"
        " ON DELETE CASCADE, CONSTRAINT pk_orders PRIMARY KEY (id, line), CONSTRAINT uq_customer UNIQUE (customer_id));"
    )
    module_client.run("CREATE VIEW dbo.names AS SELECT name FROM dbo.customers")
    module_client.run("CREATE PROCEDURE dbo.nothing AS SELECT 1 AS one")
    module_client.run("INSERT INTO dbo.customers (name) VALUES (N'a'), (N'b')")


def test_each_database_has_a_guid_of_its_own_and_none_of_an_availability_group(client: Client) -> None:
    query = "SELECT service_broker_guid, group_database_id FROM sys.databases ORDER BY database_id"
    found = client.rows(query)
    assert len({guid for guid, _ in found}) == len(found) > 4
    assert {group for _, group in found} == {None}
    assert client.rows(query) == found
    assert client.types(query) == dict.fromkeys(("service_broker_guid", "group_database_id"), GUID)


def test_system_view_columns_have_sql_servers_types(client: Client) -> None:
    assert client.types(
        "SELECT name, database_id, create_date, compatibility_level, is_cdc_enabled, recovery_model_desc "
        "FROM sys.databases"
    ) == {
        "name": SYSNAME,
        "database_id": INT,
        "create_date": TsqlType("datetime"),
        "compatibility_level": TsqlType("tinyint"),
        "is_cdc_enabled": BIT,
        "recovery_model_desc": TsqlType("nvarchar", 60),
    }
    types = client.types("SELECT * FROM sys.columns")
    assert list(types)[:12] == [
        "object_id",
        "name",
        "column_id",
        "system_type_id",
        "user_type_id",
        "max_length",
        "precision",
        "scale",
        "collation_name",
        "is_nullable",
        "is_ansi_padded",
        "is_rowguidcol",
    ]
    assert types["max_length"] == TsqlType("smallint")
    assert types["is_nullable"] == BIT


def test_every_system_view_can_be_read(client: Client) -> None:
    views = client.rows(
        "SELECT s.name, v.name FROM sys.system_views v JOIN sys.schemas s ON s.schema_id = v.schema_id ORDER BY 1, 2"
    )
    assert len(views) > 50
    for schema, name in views:
        client.run(f"SELECT TOP (1) * FROM [{schema}].[{name}]")


def test_sys_columns_describes_types_as_the_server_does(client: Client) -> None:
    assert client.rows(
        "SELECT name, TYPE_NAME(system_type_id), max_length, precision, scale, is_nullable, is_identity, "
        "is_computed FROM sys.columns"
        " WHERE object_id = OBJECT_ID('dbo.customers')"
    ) == [
        ("id", "int", 4, 10, 0, 0, 1, 0),
        ("name", "nvarchar", 40, 0, 0, 1, 0, 0),
        ("amount", "decimal", 9, 10, 2, 1, 0, 0),
        ("price", "money", 8, 19, 4, 1, 0, 0),
        ("seen", "datetime2", 7, 23, 3, 1, 0, 0),
        ("raw", "varbinary", -1, 0, 0, 1, 0, 0),
        ("twice", "decimal", 9, 12, 2, 1, 0, 1),
    ]


def test_constraints_are_listed(client: Client) -> None:
    assert client.rows("SELECT name, RTRIM(type) FROM sys.objects WHERE parent_object_id <> 0 ORDER BY name") == [
        ("ck_amount", "C"),
        ("df_amount", "D"),
        ("fk_customer", "F"),
        ("pk_customers", "PK"),
        ("pk_orders", "PK"),
        ("uq_customer", "UQ"),
    ]
    assert client.rows("SELECT seed_value, increment_value, last_value FROM sys.identity_columns") == [(10, 5, 15)]
    assert client.rows("SELECT definition, is_persisted FROM sys.computed_columns") == [("([amount]*(2))", 1)]
    assert client.rows(
        "SELECT delete_referential_action_desc, update_referential_action_desc FROM sys.foreign_keys"
    ) == [("CASCADE", "NO_ACTION")]


def test_a_heap_has_an_index_row_of_its_own(client: Client) -> None:
    client.run("CREATE TABLE dbo.heap (a int)")
    assert client.rows("SELECT index_id, type_desc, name FROM sys.indexes WHERE object_id = OBJECT_ID('dbo.heap')") == [
        (0, "HEAP", None)
    ]
    client.run("DROP TABLE dbo.heap")


def test_partitions_count_rows(client: Client) -> None:
    assert (
        client.value(
            "SELECT SUM(rows) FROM sys.partitions WHERE object_id = OBJECT_ID('dbo.customers') AND index_id IN (0, 1)"
        )
        == 2
    )


def test_pages_of_a_table_are_those_that_it_has(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.sized (id int PRIMARY KEY, short char(2000), long varbinary(max));"
        " CREATE INDEX ix_short ON dbo.sized (short); CREATE TABLE dbo.heap (a int);"
        " INSERT dbo.sized SELECT id, 'x', CONVERT(varbinary(max), REPLICATE(CONVERT(varchar(max), NEWID()), 1000))"
        " FROM dbo.customers"
    )
    sizes = (
        "SELECT p.index_id, a.type, a.type_desc, a.used_pages FROM sys.partitions p JOIN sys.allocation_units a"
        " ON a.container_id = CASE a.type WHEN 2 THEN p.partition_id ELSE p.hobt_id END"
        " WHERE p.object_id = OBJECT_ID(N'dbo.{}') ORDER BY p.index_id, a.type"
    )
    rows = client.rows(sizes.format("sized"))
    assert [row[:3] for row in rows] == [(1, 1, "IN_ROW_DATA"), (1, 2, "LOB_DATA"), (2, 1, "IN_ROW_DATA")]
    assert [row[3] > 0 for row in rows] == [True] * 3
    assert client.rows(sizes.format("heap")) == [(0, 1, "IN_ROW_DATA", 0)]
    of_stats = client.rows(
        "SELECT index_id, row_count, in_row_used_page_count, lob_used_page_count, used_page_count"
        " FROM sys.dm_db_partition_stats WHERE object_id = OBJECT_ID(N'dbo.sized') ORDER BY index_id"
    )
    (in_row, lob, index) = (row[3] for row in rows)
    assert of_stats == [(1, 2, in_row, lob, in_row + lob), (2, 2, index, 0, index)]
    client.run("DROP TABLE dbo.sized; DROP TABLE dbo.heap")


def test_information_schema_describes_columns_and_keys(client: Client) -> None:
    assert client.rows(
        "SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE, "
        "DATETIME_PRECISION, IS_NULLABLE,"
        " COLUMN_DEFAULT FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'customers' ORDER BY ORDINAL_POSITION"
    )[:6] == [
        ("id", "int", None, 10, 0, None, "NO", None),
        ("name", "nvarchar", 20, None, None, None, "YES", None),
        ("amount", "decimal", None, 10, 2, None, "YES", "((1.5))"),
        ("price", "money", None, 19, 4, None, "YES", None),
        ("seen", "datetime2", None, None, None, 3, "YES", None),
        ("raw", "varbinary", -1, None, None, None, "YES", None),
    ]
    assert client.rows("SELECT TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES ORDER BY TABLE_NAME") == [
        ("customers", "BASE TABLE"),
        ("names", "VIEW"),
        ("orders", "BASE TABLE"),
    ]
    assert client.rows(
        "SELECT k.COLUMN_NAME FROM INFORMATION_SCHEMA.TABLE_CONSTRAINTS t JOIN INFORMATION_SCHEMA.KEY_COLUMN_USAGE k"
        " ON k.CONSTRAINT_NAME = t.CONSTRAINT_NAME WHERE t.CONSTRAINT_TYPE = 'PRIMARY KEY' AND t.TABLE_NAME = 'orders'"
        " ORDER BY k.ORDINAL_POSITION"
    ) == [("id",), ("line",)]
    assert client.rows(
        "SELECT CONSTRAINT_NAME, UNIQUE_CONSTRAINT_NAME, DELETE_RULE FROM INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS"
    ) == [("fk_customer", "pk_customers", "CASCADE")]


def test_views_are_per_database_and_reached_by_three_part_names(client: Client) -> None:
    assert client.value("SELECT COUNT(*) FROM master.sys.tables") == 0
    assert client.value("SELECT COUNT(*) FROM catalog_views.sys.tables") == 2
    assert client.rows("SELECT name FROM master.sys.procedures") == []
    assert client.rows("SELECT name FROM sys.procedures") == [("nothing",)]


def test_metadata_functions_agree_with_the_views(client: Client) -> None:
    assert client.rows(
        "SELECT OBJECT_NAME(object_id), SCHEMA_NAME(schema_id), OBJECT_SCHEMA_NAME(object_id, DB_ID('catalog_views')),"
        " COLUMNPROPERTY(object_id, 'id', 'IsIdentity') FROM sys.tables WHERE name = 'customers'"
    ) == [("customers", "dbo", "dbo", 1)]
    assert client.value("SELECT OBJECT_ID(N'dbo.missing')") is None


def test_the_own_session_is_listed(client: Client) -> None:
    client.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert client.rows(
        "SELECT transaction_isolation_level, login_name, program_name, DB_NAME(database_id) FROM "
        "sys.dm_exec_sessions WHERE session_id = @@SPID"
    ) == [(3, "sa", "test", "catalog_views")]


def test_the_agent_runs(client: Client) -> None:
    assert client.rows(
        "SELECT status, status_desc FROM sys.dm_server_services WHERE servicename LIKE N'SQL Server Agent (%'"
    ) == [(4, "Running")]


def test_defaults_are_shown_alike_in_views_and_procedures(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.defaulted (a int DEFAULT 0, b nvarchar(9) DEFAULT (N'x'), c datetime DEFAULT GETDATE())"
    )
    shown = ["((0))", "(N'x')", "(getdate())"]
    by_schema = "SELECT COLUMN_DEFAULT FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'defaulted'"
    by_view = "SELECT definition FROM sys.default_constraints WHERE parent_object_id = OBJECT_ID('dbo.defaulted')"
    assert [text for (text,) in client.rows(f"{by_schema} ORDER BY ORDINAL_POSITION")] == shown
    assert [text for (text,) in client.rows(f"{by_view} ORDER BY parent_column_id")] == shown
    listed = client.run("EXEC sp_columns N'defaulted'").results[-1]
    place = [column.name for column in listed.columns].index("COLUMN_DEF")
    assert [row[place] for row in listed.rows] == shown
