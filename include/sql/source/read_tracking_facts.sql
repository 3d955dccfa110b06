-- The facts that ``doctor`` reads of a database with change tracking, with whatever rights the login has. What is hidden is
-- NULL, or has no row. Result sets: 1 server and database, 2 modules that truncate a table.
SET NOCOUNT ON;
-- A lock timeout ends the batch, and not only its statement: each later one would wait as long again.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @oldest_at datetime,
    @sees_state int = HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE');

IF @sees_state = 1
    EXEC sys.sp_executesql
        N'SELECT TOP (1) @oldest_at = commit_time FROM sys.dm_tran_commit_table ORDER BY commit_ts',
        N'@oldest_at datetime OUTPUT', @oldest_at = @oldest_at OUTPUT;

SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)) AS product_version,
    CAST(SERVERPROPERTY('EngineEdition') AS int) AS engine_edition,
    DB_NAME() AS database_name, USER_NAME() AS user_name, IS_MEMBER(N'db_owner') AS is_db_owner,
    @sees_state AS may_view_state, GETUTCDATE() AS taken_at_utc,
    DATEDIFF(minute, GETUTCDATE(), GETDATE()) AS utc_offset_minutes,
    DATEDIFF(second, @oldest_at, GETDATE()) AS oldest_seconds,
    (SELECT snapshot_isolation_state FROM sys.databases WHERE name = DB_NAME()) AS snapshot_state,
    (SELECT MAX(retention_period) FROM sys.change_tracking_databases WHERE database_id = DB_ID()) AS retention_period,
    (SELECT MAX(CAST(retention_period_units AS int)) FROM sys.change_tracking_databases
        WHERE database_id = DB_ID()) AS retention_period_units,
    (SELECT MAX(CAST(is_auto_cleanup_on AS int)) FROM sys.change_tracking_databases
        WHERE database_id = DB_ID()) AS is_auto_cleanup_on,
    HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DEFINITION') AS sees_policies;

SELECT s.name AS schema_name, o.name AS module_name, m.definition
FROM sys.sql_modules AS m
JOIN sys.objects AS o ON o.object_id = m.object_id
JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE o.is_ms_shipped = 0 AND UPPER(m.definition) LIKE N'%TRUNCATE%TABLE%';
