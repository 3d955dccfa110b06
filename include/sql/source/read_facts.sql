-- The facts that ``doctor`` reads of a server in addition to a snapshot. A value that may be hidden from the login is
-- read by dynamic SQL under TRY, and is NULL, or an empty set, where it is hidden. Result sets: 1 server and database,
-- 2 text columns of another collation than the database, 3 gating roles.
SET NOCOUNT ON;
-- An error ends the batch: the statements after it would hide its number.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @agent bit, @lob_limit int;

BEGIN TRY
    EXEC sys.sp_executesql
        N'SELECT @agent = MAX(CASE WHEN status = 4 THEN 1 ELSE 0 END)
          FROM sys.dm_server_services WHERE servicename LIKE N''SQL Server Agent%''',
        N'@agent bit OUTPUT', @agent = @agent OUTPUT;
END TRY
BEGIN CATCH
    SET @agent = NULL; -- not without VIEW SERVER STATE, and not on Azure SQL Database
END CATCH;

BEGIN TRY
    EXEC sys.sp_executesql
        N'SELECT @limit = CAST(value_in_use AS int) FROM sys.configurations WHERE name = N''max text repl size (B)''',
        N'@limit int OUTPUT', @limit = @lob_limit OUTPUT;
END TRY
BEGIN CATCH
    SET @lob_limit = NULL;
END CATCH;

SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)) AS product_version,
    CAST(SERVERPROPERTY('EngineEdition') AS int) AS engine_edition,
    DB_NAME() AS database_name, USER_NAME() AS user_name, IS_MEMBER(N'db_owner') AS is_db_owner,
    CAST(DATABASEPROPERTYEX(DB_NAME(), 'Collation') AS nvarchar(128)) AS collation,
    @lob_limit AS lob_limit_bytes, @agent AS agent_running,
    HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE') AS may_view_state,
    GETUTCDATE() AS taken_at_utc, DATEDIFF(minute, GETUTCDATE(), GETDATE()) AS utc_offset_minutes;

SELECT s.name AS schema_name, t.name AS table_name, c.name AS column_name, c.collation_name
FROM sys.columns AS c
JOIN sys.tables AS t ON t.object_id = c.object_id
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
JOIN sys.types AS y ON y.user_type_id = c.system_type_id
WHERE t.is_tracked_by_cdc = 1 AND y.name IN (N'char', N'varchar', N'text')
    AND c.collation_name <> CAST(DATABASEPROPERTYEX(DB_NAME(), 'Collation') AS nvarchar(128));

IF (SELECT is_cdc_enabled FROM sys.databases WHERE name = DB_NAME()) = 1
    EXEC sys.sp_cdc_help_change_data_capture;
