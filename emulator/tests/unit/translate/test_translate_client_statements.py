"""The statements that real drivers, Debezium, Spark and SQLAlchemy send: each is translated, or refused by name.

Retyped short forms; what they give is tested elsewhere.
"""

from __future__ import annotations

import pytest

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from translate_catalog import FakeCatalog, table
from translate_statement import translate

_MORE = (
    table(9001, "Shop.dbo.clients", "id int!; name nvarchar(50); amount decimal(18,2); updated datetime2(7)", ("id",)),
    table(9002, "Shop.dbo.signal", "id varchar(42); type varchar(32)!; data varchar(2048)"),
    table(9003, "Shop.sys.dm_exec_sessions", "session_id smallint!; transaction_isolation_level smallint!"),
    table(9004, "Shop.sys.system_views", "name sysname!"),
    table(9005, "Shop.sys.configurations", "name nvarchar(35)!; maximum sql_variant"),
    table(9006, "Shop.sys.all_columns", "object_id int!; name sysname; column_id int!; graph_type int"),
    table(9007, "Shop.sys.foreign_keys", "name sysname!; schema_id int!; update_referential_action tinyint"),
    table(9008, "Shop.sys.dm_server_services", "servicename nvarchar(256)!; status int"),
    table(9009, "Shop.sys.indexes", "object_id int!; index_id int!; is_primary_key bit"),
    table(9010, "Shop.sys.index_columns", "object_id int!; index_id int!; column_id int!; key_ordinal tinyint!"),
    table(9011, "Shop.sys.tables", "name sysname!; object_id int!; schema_id int!; is_tracked_by_cdc bit"),
    table(9012, "Shop.dbo.@rows", "TABLE_NAME sysname!; SS_IS_IDENTITY smallint"),
    table(9013, "Shop.sys.types", "name sysname!; system_type_id tinyint!; user_type_id int!"),
    table(9014, "Shop.sys.key_constraints", "name sysname!; type char(2); parent_object_id int!; unique_index_id int"),
    table(9015, "Shop.dbo.heartbeat", "id int!; ts datetime", ("id",)),
)

_KEYSET = (
    "(([cdc_data].[__$start_lsn] = @p0 AND [cdc_data].[__$seqval] = @p0 AND [cdc_data].[__$operation] > @i)"
    " OR ([cdc_data].[__$start_lsn] = @p0 AND [cdc_data].[__$seqval] > @p0) OR ([cdc_data].[__$start_lsn] > @p0))"
)
_LTM = "LEFT JOIN [Shop].cdc.lsn_time_mapping ltm ON ltm.start_lsn = cdc_data.[__$start_lsn]"
_ORDERED = (
    "WITH ordered AS (SELECT ROW_NUMBER() OVER (PARTITION BY ct.source_object_id, ct.start_lsn"
    " ORDER BY ct.create_date DESC) AS ct_sequence, ct.* FROM [Shop].cdc.change_tables AS ct WHERE ct.start_lsn <= @p0)"
)

TRANSLATED = [
    # Debezium
    "SELECT @@VERSION",
    "SELECT name FROM sys.databases WHERE name =  @n",
    "SELECT TOP(0) * FROM [Shop].[dbo].[clients] WITH (TABLOCKX)",
    "SELECT [Shop].sys.fn_cdc_get_max_lsn()",
    "SELECT object_id, column_name FROM [Shop].cdc.captured_columns ORDER BY object_id, column_id",
    f"{_ORDERED} SELECT OBJECT_SCHEMA_NAME(source_object_id, DB_ID(@n)), OBJECT_NAME(source_object_id, DB_ID( @n ))"
    ", capture_instance, object_id, start_lsn FROM ordered WHERE ct_sequence = 1",
    "SELECT CAST(SERVERPROPERTY('EngineEdition') as INT)",
    "SELECT 1",
    "SELECT SYSDATETIMEOFFSET()",
    "SELECT PARSE( @n  AS datetime2)",
    "SELECT [id], [name], [amount], [updated] FROM [Shop].[dbo].[clients]",
    "SELECT MAX(start_lsn) FROM (SELECT TOP ( @i + 1) start_lsn FROM [Shop].cdc.lsn_time_mapping WHERE start_lsn >="
    "  @p0 AND tran_id <> 0x00 ORDER BY start_lsn) as next_lsns",
    "SELECT MAX(start_lsn) FROM [Shop].cdc.lsn_time_mapping WHERE tran_id <> 0x00",
    "select min(start_lsn) from [Shop].cdc.change_tables",
    "SELECT COUNT(*) FROM [Shop].cdc.change_tables",
    "SELECT [Shop].sys.fn_cdc_increment_lsn( @p0 )",
    "SELECT [Shop].sys.fn_cdc_get_min_lsn( @n )",
    "SELECT * FROM [Shop].cdc.change_tables WHERE start_lsn BETWEEN  @p0 AND  @p0",
    "SELECT cdc_data.[__$start_lsn], [cdc_data].[OrderID], TODATETIMEOFFSET(ltm.tran_end_time, DATEPART(TZOFFSET,"
    f" SYSDATETIMEOFFSET())) FROM [Shop].cdc.[dbo_Orders_CT] AS cdc_data {_LTM}  WHERE {_KEYSET} AND"
    " [cdc_data].[__$start_lsn] <=  @p0 ORDER BY cdc_data.[__$start_lsn] ASC, cdc_data.[__$command_id] ASC",
    "SELECT [__$start_lsn], TODATETIMEOFFSET([Shop].sys.fn_cdc_map_lsn_to_time([__$start_lsn]), DATEPART(TZOFFSET,"
    " SYSDATETIMEOFFSET())) FROM [Shop].cdc.[fn_cdc_get_all_changes_dbo_Orders]( @p0 ,  @p0 , N'all')"
    " WHERE [__$operation] NOT IN (1) ORDER BY [__$start_lsn] ASC, [__$seqval] ASC",
    "INSERT INTO [Shop].[dbo].[signal] VALUES ( @n ,  @n ,  @n )",
    "SELECT TOP 1 * FROM [Shop].[dbo].[clients] ORDER BY [id] DESC",
    "SELECT TOP 1024 * FROM [Shop].[dbo].[clients] ORDER BY [id]",
    "SELECT CASE WHEN dss.[status]=4 THEN 1 ELSE 0 END AS isRunning FROM [Shop].sys.dm_server_services dss"
    " WHERE dss.[servicename] LIKE N'SQL Server Agent (%'",
    "SELECT [id] FROM dbo.clients ORDER BY id OFFSET 10 ROWS FETCH NEXT 1 ROWS ONLY",
    "SELECT tables.object_id, columns.name FROM [Shop].sys.columns columns INNER JOIN [Shop].cdc.change_tables tables"
    " ON tables.source_object_id = columns.object_id ORDER BY tables.object_id, columns.column_id",
    # mssql-jdbc
    "select name from sys.databases where name =  @n and 1= @i",
    "SELECT name AS TABLE_CAT FROM sys.databases order by name",
    "select sys.schemas.name 'TABLE_SCHEM', CASE WHEN sys.schemas.name  IN  ('dbo', 'guest')  THEN null"
    " ELSE  DB_NAME()  END 'TABLE_CATALOG'    from sys.schemas order by 2, 1",
    "SELECT TABLE_NAME AS T, NULL AS SCOPE_CATALOG, CASE SS_IS_IDENTITY WHEN 0 THEN 'NO' WHEN 1 THEN 'YES'"
    " WHEN '' THEN '' END AS IS_AUTOINCREMENT FROM @rows ORDER BY T",
    "SELECT t.TABLE_NAME, CASE s.update_referential_action WHEN 1 THEN 0 WHEN 0 THEN 3 END as UPDATE_RULE FROM @rows t"
    " LEFT JOIN sys.foreign_keys s ON t.TABLE_NAME = s.name COLLATE database_default AND"
    " schema_id(t.TABLE_NAME) = s.schema_id ORDER BY UPDATE_RULE",
    "SELECT 'VIEW' 'TABLE_TYPE' UNION SELECT 'TABLE' UNION SELECT 'SYSTEM TABLE'",
    "SELECT SYSTEM_USER",
    "select maximum from sys.configurations where name = 'user connections'",
    "insert into dbo.t(a,b,c,d) values ( @i , @n , @i , @n )",
    "select SCOPE_IDENTITY() AS GENERATED_KEYS",
    "select * from types WHERE 1=0",
    # pymssql, mssql-python, bulk loads
    "select * from t where a=5 and b=N'O''Brien é' and d='2024-01-02 03:04:05.123' and c='' and e=NULL",
    "SELECT column_id, TYPE_NAME(system_type_id) AS system_type_name, is_identity FROM sys.columns"
    " WHERE object_id = OBJECT_ID(N'dbo.t')",
    "insert into t(a, b) values(1,N'a')",
    "SELECT SCOPE_IDENTITY()",
    "SELECT @@TRANCOUNT",
    "SELECT @s = COALESCE(@s + N', ', N'') + QUOTENAME([name]) FROM sys.all_columns WHERE [object_id] = @i"
    " AND COALESCE([graph_type], 0) NOT IN (1, 3, 4, 6, 7) ORDER BY [column_id] ASC",
    "SELECT @s = COALESCE(@s, '*')",
    "SELECT SCHEMA_NAME()",
    "SELECT c.name FROM sys.columns c WHERE c.object_id = OBJECT_ID('t') AND EXISTS (SELECT 1 FROM sys.index_columns ic"
    " INNER JOIN sys.indexes i ON ic.object_id = i.object_id AND ic.index_id = i.index_id WHERE i.is_primary_key = 1"
    " AND ic.object_id = c.object_id AND ic.column_id = c.column_id)",
    "MERGE INTO clients WITH (ROWLOCK) AS target USING (SELECT @i AS [id], @n AS [name]) AS source"
    " ON target.id = source.id WHEN MATCHED THEN UPDATE SET target.[name] = source.[name]"
    " WHEN NOT MATCHED THEN INSERT (id, name)"
    " VALUES (source.[id], source.[name]);",
    # SQLAlchemy
    "SELECT name FROM sys.system_views WHERE name IN ('dm_exec_sessions', 'dm_pdw_nodes_exec_sessions')",
    "SELECT CASE transaction_isolation_level WHEN 0 THEN NULL WHEN 1 THEN 'READ UNCOMMITTED' WHEN 5 THEN 'SNAPSHOT' END"
    " AS TRANSACTION_ISOLATION_LEVEL FROM sys.dm_exec_sessions where session_id = @@SPID",
    "SELECT CAST('test max support' AS NVARCHAR(max))",
    "SELECT [INFORMATION_SCHEMA].[TABLES].[TABLE_NAME] FROM [INFORMATION_SCHEMA].[TABLES] WHERE"
    " [INFORMATION_SCHEMA].[TABLES].[TABLE_SCHEMA] = CAST(@n AS NVARCHAR(max)) ORDER BY"
    " [INFORMATION_SCHEMA].[TABLES].[TABLE_NAME]",
    "SELECT sys.objects.name FROM sys.objects JOIN sys.schemas ON sys.objects.schema_id = sys.schemas.schema_id"
    " WHERE sys.schemas.name = CAST(@n AS NVARCHAR(max)) AND sys.objects.type IN (@n, @n)",
    "SELECT sys.columns.name, base_types.name AS base_type, CAST(sys.columns.column_id AS NUMERIC(38, 0)) AS seed"
    " FROM sys.columns JOIN sys.types ON sys.columns.column_id = sys.types.user_type_id LEFT OUTER JOIN sys.types AS"
    " base_types ON sys.types.system_type_id = base_types.system_type_id ORDER BY sys.columns.column_id",
    "SELECT sys.key_constraints.name AS constraint_name FROM sys.key_constraints WITH (READPAST) JOIN sys.objects ON"
    " sys.key_constraints.parent_object_id = sys.objects.object_id WHERE sys.key_constraints.type = N'PK'",
    "WITH fk_info AS (SELECT a.name FROM sys.objects a INNER JOIN sys.columns b ON a.object_id = b.object_id), x AS"
    " (SELECT sys.schemas.name AS n FROM sys.schemas) SELECT fk_info.name, x.n FROM fk_info INNER JOIN x"
    " ON fk_info.name = x.n UNION SELECT fk_info.name, x.n FROM fk_info INNER JOIN x"
    " ON NOT (x.n = fk_info.name AND 1 = 0) ORDER BY fk_info.name",
    "INSERT INTO t (a, b, c) OUTPUT inserted.a VALUES (@i, @n, @i)",
    "INSERT INTO t (a, b, c) OUTPUT inserted.a VALUES (1, N'a', NULL), (2, N'b', NULL)",
    "SELECT t.a, t.b FROM t WHERE t.a = @i ORDER BY t.a OFFSET @i ROWS FETCH FIRST @i ROWS ONLY",
    # Spark
    "SELECT * FROM dbo.clients WHERE 1=0",
    'SELECT  "id","name" FROM dbo.clients WHERE ("id" IS NOT NULL) AND ("id" > 5) AND ("name" = \'x\')'
    " AND (\"updated\" >= '2024-01-01 00:00:00.0')   ",
    "SELECT * FROM (select * from cdc.fn_cdc_get_all_changes_dbo_Orders(0x01,0x02,N'all')) SPARK_GEN_SUBQ_0 WHERE 1=0",
    'SELECT  1 FROM dbo.clients WHERE "id" < 50 or "id" is null',
    # readers of CDC
    "SELECT CONVERT(varchar(22), MAX(start_lsn), 1) FROM cdc.lsn_time_mapping",
    "SELECT CONVERT(binary(10), @n, 1)",
    "SELECT CURRENT_TIMEZONE_ID()",
    "SELECT CHECKSUM_AGG(CHECKSUM(object_id, column_name)) FROM cdc.captured_columns WITH (NOLOCK, FORCESEEK)",
    "SELECT TOP (@i) start_lsn FROM cdc.lsn_time_mapping WHERE start_lsn >= @p0 ORDER BY start_lsn",
    "SELECT s.name, t.name FROM cdc.change_tables c JOIN sys.tables t ON t.object_id = c.source_object_id"
    " JOIN sys.schemas s ON s.schema_id = t.schema_id WHERE t.is_tracked_by_cdc = 1",
    "MERGE heartbeat AS t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET ts = GETDATE()"
    " WHEN NOT MATCHED THEN INSERT (id, ts) VALUES (1, GETDATE());",
    "TRUNCATE TABLE dbo.clients",
    "CREATE TABLE t1 (id INTEGER NOT NULL IDENTITY, n VARCHAR(20) NULL, d NUMERIC(18, 2) NULL, PRIMARY KEY (id))",
]
REFUSED = {
    "SELECT 1 FROM fn_listextendedproperty(default, default, default, default, default, default, default)": 208,
    "sp_datatype_info_100 @ODBCVer=3": 102,
    "INSERT INTO @rows EXEC sp_columns_100  @n": NotSupportedByEmulatorError.NUMBER,
}
_VARIABLES = {"p0": "varbinary(8000)", "n": "nvarchar(4000)", "i": "int", "s": "nvarchar(max)"}


@pytest.mark.parametrize("sql", TRANSLATED)
def test_statement_of_a_real_client_is_translated(sql: str) -> None:
    translated = translate(sql, catalog=FakeCatalog(*_MORE), **_VARIABLES)
    assert translated.sql or translated.ddl is not None


@pytest.mark.parametrize("sql", REFUSED)
def test_statement_of_a_real_client_is_refused_with_its_number(sql: str) -> None:
    with pytest.raises(SqlServerError) as raised:
        translate(sql, catalog=FakeCatalog(*_MORE), **_VARIABLES)
    assert raised.value.number == REFUSED[sql]
