"""See docs/reference/sqlserver_cdc.md, "Consumers": what the consumers of change data capture that people run ask for,
statement by statement."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import wait_until
from conformance_server import Server, Source, new_database

_WINDOW = (
    "DECLARE @low binary(10) = sys.fn_cdc_get_min_lsn(N'dbo_t'), @high binary(10) = sys.fn_cdc_get_max_lsn();"
    " DECLARE @low2 binary(10) = sys.fn_cdc_get_min_lsn(N'dbo_u');"
)
_DEBEZIUM = {
    "newest commit": "SELECT MAX(start_lsn) FROM cdc.lsn_time_mapping WITH (NOLOCK) WHERE tran_id <> 0x00",
    "newest of the next commits": (
        "SELECT MAX(start_lsn) FROM (SELECT TOP (2) start_lsn FROM cdc.lsn_time_mapping WHERE tran_id <> 0x00 AND"
        " start_lsn >= (SELECT MAX(start_lsn) FROM (SELECT TOP (2 + 1) start_lsn FROM cdc.lsn_time_mapping"
        " WHERE tran_id <> 0x00 ORDER BY start_lsn) AS inner_rows) ORDER BY start_lsn) AS outer_rows"
    ),
    "changes in order": (
        f"{_WINDOW} SELECT * FROM cdc.[fn_cdc_get_all_changes_dbo_t](@low, @high, N'all update old') ORDER BY"
        " [__$start_lsn] ASC, [__$seqval] ASC, [__$operation] ASC"
    ),
    "change table with times": (
        "SELECT c.*, TODATETIMEOFFSET(m.tran_end_time, DATEPART(TZOFFSET, SYSDATETIMEOFFSET())) FROM cdc.dbo_t_CT c"
        " LEFT JOIN cdc.lsn_time_mapping m ON m.start_lsn = c.[__$start_lsn] ORDER BY c.[__$start_lsn],"
        " c.[__$command_id], c.[__$seqval], c.[__$operation]"
    ),
    "resuming inside a transaction": (
        f"{_WINDOW} DECLARE @seq binary(10) = 0x00000000000000000000, @op int = 2; SELECT * FROM cdc.dbo_t_CT WHERE"
        " ([__$start_lsn] = @high AND [__$seqval] = @seq AND [__$operation] > @op) OR ([__$start_lsn] = @high AND"
        " [__$seqval] > @seq) OR ([__$start_lsn] > @low) ORDER BY [__$start_lsn]"
    ),
    "time of a commit": (
        "SELECT TODATETIMEOFFSET(sys.fn_cdc_map_lsn_to_time(sys.fn_cdc_get_max_lsn()),"
        " DATEPART(TZOFFSET, SYSDATETIMEOFFSET()))"
    ),
    "newest instances": (
        "WITH ordered AS (SELECT ROW_NUMBER() OVER (PARTITION BY ct.source_object_id, ct.start_lsn ORDER BY"
        " ct.create_date DESC) AS place, ct.*, OBJECT_SCHEMA_NAME(ct.source_object_id, DB_ID(N'{0}')) AS s,"
        " OBJECT_NAME(ct.source_object_id, DB_ID(N'{0}')) AS t FROM cdc.change_tables AS ct) SELECT o.s, o.t,"
        " o.capture_instance, c.column_name FROM ordered o JOIN cdc.captured_columns c ON c.object_id = o.object_id"
        " WHERE o.place = 1"
    ),
    "the Agent": "SELECT 1 FROM sys.dm_server_services WHERE servicename LIKE 'SQL Server Agent%' AND status = 4",
    "last scan": "SELECT TOP 1 * FROM sys.dm_cdc_log_scan_sessions ORDER BY session_id DESC",
    "jobs": "EXEC sys.sp_cdc_help_jobs",
    "instances": "EXEC [{0}].sys.sp_cdc_help_change_data_capture",
    "locked table": "SELECT * FROM [{0}].[dbo].[t] WITH (TABLOCKX)",
}
_ESTUARY = {
    "newest change of all": (
        "SELECT MAX(lsn) FROM (SELECT MAX(start_lsn) AS lsn FROM cdc.lsn_time_mapping UNION ALL"
        " SELECT MAX([__$start_lsn]) FROM cdc.dbo_t_CT UNION ALL SELECT MAX([__$start_lsn]) FROM cdc.dbo_u_CT) AS every"
    ),
    "finished scans": (
        "SELECT start_time, latency FROM sys.dm_cdc_log_scan_sessions WHERE scan_phase = 'Done' ORDER BY session_id"
        " DESC OFFSET 0 ROWS FETCH FIRST 1 ROWS ONLY"
    ),
    "instances": (
        "SELECT s.name, t.name, c.capture_instance, c.start_lsn, c.create_date FROM cdc.change_tables c"
        " JOIN sys.tables t ON t.object_id = c.source_object_id JOIN sys.schemas s ON s.schema_id = t.schema_id"
    ),
    "history": (
        "SELECT c.capture_instance, h.required_column_update, h.ddl_command, h.ddl_lsn, h.ddl_time FROM cdc.ddl_history"
        " h JOIN cdc.change_tables c ON c.object_id = h.object_id ORDER BY h.ddl_lsn"
    ),
    "cleanup": (
        "EXEC sp_executesql N'EXEC sys.sp_cdc_cleanup_change_table @capture_instance = @p1, @low_water_mark = @p2;"
        " SELECT 1', N'@p1 sysname, @p2 binary(10)', N'dbo_t', NULL"
    ),
    "jobs": "SELECT retention FROM msdb.dbo.cdc_jobs WHERE database_id = DB_ID() AND job_type = N'cleanup'",
}
_POWERSYNC = {
    "end of the log": "SELECT log_end_lsn FROM sys.dm_db_log_stats(DB_ID())",
    "next commits": (
        "DECLARE @p binary(10) = 0x00000000000000000001; SELECT TOP (100) start_lsn FROM cdc.lsn_time_mapping"
        " WHERE start_lsn >= @p ORDER BY start_lsn"
    ),
    "edition": (
        "SELECT CAST(SERVERPROPERTY('EngineEdition') AS int), CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128))"
    ),
    "heartbeat": (
        "MERGE dbo.u AS target USING (SELECT 1 AS id) AS source ON target.id = source.id WHEN MATCHED THEN UPDATE SET"
        " target.v = GETUTCDATE() WHEN NOT MATCHED THEN INSERT (id, v) VALUES (source.id, GETUTCDATE()); SELECT 1"
    ),
    "history": "EXEC [{0}].sys.sp_cdc_get_ddl_history @capture_instance = N'dbo_t'",
}
_WOODLEE = {
    "shape of the instances": (
        "SELECT capture_instance, CHECKSUM_AGG(CHECKSUM(cc.column_name, cc.column_type, cc.column_ordinal)) FROM"
        " cdc.captured_columns cc JOIN cdc.change_tables ct ON ct.object_id = cc.object_id GROUP BY capture_instance"
    ),
    "changes of two tables": (
        f"{_WINDOW} SELECT 1 AS t, [__$start_lsn], [__$seqval], [__$operation], id FROM cdc.dbo_t_CT WITH (NOLOCK,"
        " FORCESEEK) WHERE [__$start_lsn] > @low UNION ALL SELECT 2, [__$start_lsn], [__$seqval], [__$operation], id"
        " FROM cdc.dbo_u_CT WITH (NOLOCK, FORCESEEK) WHERE [__$start_lsn] > @low2 ORDER BY 2, 3, 4"
    ),
    "key columns": (
        "SELECT COL_NAME(ic.object_id, ic.column_id), ic.key_ordinal FROM sys.index_columns ic JOIN sys.indexes i ON"
        " i.object_id = ic.object_id AND i.index_id = ic.index_id WHERE i.is_primary_key = 1 AND ic.object_id ="
        " OBJECT_ID(N'dbo.t')"
    ),
}
_PYSPARK = {
    "round trip": (
        "DECLARE @text varchar(22) = CONVERT(varchar(22), sys.fn_cdc_get_max_lsn(), 1); SELECT 1 WHERE"
        " CONVERT(binary(10), @text, 1) = sys.fn_cdc_get_max_lsn()"
    ),
    "time zone": "SELECT CURRENT_TIMEZONE_ID()",
}
_ASKED = {
    f"{consumer}: {what}": sql
    for consumer, statements in (
        ("Debezium", _DEBEZIUM),
        ("Estuary", _ESTUARY),
        ("PowerSync", _POWERSYNC),
        ("woodlee", _WOODLEE),
        ("mssql-cdc-pyspark", _PYSPARK),
    )
    for what, sql in statements.items()
}


@pytest.fixture(scope="module")
def consumed(server: Server) -> Iterator[Source]:
    """t with changes and history, u with a time."""
    with new_database(server) as made:
        made.admin.run(
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10))",
            "CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY, v datetime)",
        )
        made.enable("t")
        made.enable("u")
        made.admin.run(
            "INSERT dbo.t VALUES (1, 'a')",
            "UPDATE dbo.t SET v = 'b'",
            "INSERT dbo.u VALUES (7, GETDATE())",
            "ALTER TABLE dbo.t ADD w int NULL",
        )
        made.scan()
        yield made


@pytest.mark.parametrize("asked", _ASKED)
def test_statement_of_a_consumer_is_answered_with_rows(consumed: Source, asked: str) -> None:
    assert consumed.admin.rows(_ASKED[asked].format(consumed.name))


def test_consumer_enables_and_disables_with_parameters(consumed: Source) -> None:
    """Estuary."""
    consumed.admin.run(
        "CREATE TABLE dbo.made (id int NOT NULL PRIMARY KEY)",
        "EXEC sp_executesql N'EXEC sys.sp_cdc_enable_table @source_schema = @p1, @source_name = @p2, @role_name = @p3,"
        " @capture_instance = @p4', N'@p1 nvarchar(128), @p2 nvarchar(128), @p3 nvarchar(128), @p4 nvarchar(128)',"
        " N'dbo', N'made', NULL, N'flow_made'",
    )
    helped = "EXEC sys.sp_cdc_help_change_data_capture N'dbo', N'made'"
    assert [row["capture_instance"] for row in consumed.admin.query(helped)] == ["flow_made"]
    consumed.admin.run(
        "EXEC sp_executesql N'EXEC sys.sp_cdc_disable_table @p1, @p2, @p3', N'@p1 nvarchar(128), @p2 nvarchar(128),"
        " @p3 nvarchar(128)', N'dbo', N'made', N'flow_made'"
    )
    assert consumed.admin.error(helped).number == 22985


def test_job_is_stopped_and_scans_done_by_hand_until_a_change_is_there(source: Source) -> None:
    """Test suites of other products do so."""
    admin = source.admin
    admin.run(
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)",
        "EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL",
    )
    admin.send("EXEC sys.sp_cdc_stop_job N'capture'")
    running = (
        "SELECT 1 FROM msdb.dbo.sysjobactivity a JOIN msdb.dbo.sysjobs j ON j.job_id = a.job_id WHERE j.name ="
        f" N'cdc.{source.name}_capture' AND a.start_execution_date IS NOT NULL AND a.stop_execution_date IS NULL"
        " AND a.session_id = (SELECT MAX(session_id) FROM msdb.dbo.sysjobactivity)"
    )
    wait_until(lambda: not admin.rows(running))
    admin.run("INSERT dbo.t VALUES (1)")

    def is_captured() -> bool:
        admin.run("EXEC sys.sp_cdc_scan @maxtrans = 500, @maxscans = 1")
        return admin.rows("SELECT id FROM cdc.dbo_t_CT") == [(1,)]

    wait_until(is_captured)


def test_log_ends_after_the_newest_captured_commit(consumed: Source) -> None:
    """PowerSync compares the two."""
    ((end,),) = consumed.admin.rows(_POWERSYNC["end of the log"])
    newest = consumed.admin.scalar("sys.fn_cdc_get_max_lsn()").hex()
    assert str(end).lower() > f"{newest[:8]}:{newest[8:16]}:{newest[16:]}"
    assert len(end) == len("0000002d:00000580:001d")
