-- Everything a run must know of the database before it reads a row, in one round trip and with one constant text. Nothing
-- here needs more than SELECT on the source tables and on their change tables: cdc.change_tables and
-- cdc.captured_columns are for db_owner only, so that the instances come from the procedure and the captured columns from
-- the change tables themselves (read_tables.sql). Parameters: the positions to look up, ten bytes each, one after
-- the other; whether the instances are wanted. Result sets, in order (the last three only where CDC is on): 1 database, 2
-- log position, 3 entries of the log, 4 instances.
SET NOCOUNT ON;
-- An error ends the batch: the statements after it would hide its number.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @positions varbinary(max) = ?, @with_instances bit = ?;
DECLARE @edition int = CAST(SERVERPROPERTY('EngineEdition') AS int), @enabled bit, @max_lsn binary(10),
    @capture_running bit, @ahead int = 0, @guid uniqueidentifier, @group uniqueidentifier, @is_replica bit =
    CASE WHEN CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(128)) = N'READ_ONLY' THEN 1 ELSE 0 END;
-- Both identifiers move with the database: the first stays through renames, restores and failovers, the second is the
-- same on every replica of an availability group, and NULL outside of one.
SELECT @enabled = is_cdc_enabled, @guid = service_broker_guid, @group = group_database_id
FROM sys.databases WHERE name = DB_NAME();

-- As text, because Azure SQL Database refuses a batch that so much as names msdb. A job that is not continuous has a
-- separate schedule and is idle between two scans: its state is not known then. Nor is it on a replica, whose msdb is not
-- the primary's.
IF @enabled = 1 AND @edition NOT IN (5, 12) AND @is_replica = 0
    AND HAS_PERMS_BY_NAME(N'msdb.dbo.cdc_jobs', N'OBJECT', N'SELECT') = 1
    AND HAS_PERMS_BY_NAME(N'msdb.dbo.sysjobactivity', N'OBJECT', N'SELECT') = 1
    EXEC sys.sp_executesql
        N'SELECT @running = MAX(CASE WHEN a.start_execution_date IS NOT NULL AND a.stop_execution_date IS NULL THEN 1
                  WHEN j.continuous = 1 THEN 0 END)
          FROM msdb.dbo.cdc_jobs AS j
          LEFT JOIN msdb.dbo.sysjobactivity AS a
              ON a.job_id = j.job_id AND a.session_id = (SELECT MAX(session_id) FROM msdb.dbo.sysjobactivity)
          WHERE j.database_id = DB_ID() AND j.job_type = N''capture''',
        N'@running bit OUTPUT',
        @running = @capture_running OUTPUT;

-- By how much the clock was set forward in the last two hours, as when summer time begins: what was noted before that
-- seems so much older. Negative where it was set back: what was noted before may seem to be in the future. 0 where the
-- server does not report its time zone (before SQL Server 2022).
BEGIN TRY
    EXEC sys.sp_executesql
        N'SELECT @ahead = DATEPART(tzoffset, n.at AT TIME ZONE N''UTC'' AT TIME ZONE CURRENT_TIMEZONE_ID())
              - DATEPART(tzoffset, DATEADD(hour, -2, n.at) AT TIME ZONE N''UTC'' AT TIME ZONE CURRENT_TIMEZONE_ID())
          FROM (VALUES (SYSUTCDATETIME())) AS n (at)',
        N'@ahead int OUTPUT',
        @ahead = @ahead OUTPUT;
END TRY
BEGIN CATCH
    SET @ahead = 0;
END CATCH;

SELECT DB_NAME() AS database_name, @enabled AS is_cdc_enabled, GETDATE() AS taken_at,
    @capture_running AS capture_running, @edition AS engine_edition, @ahead AS clock_ahead_minutes,
    @is_replica AS is_replica, CAST(SERVERPROPERTY('ServerName') AS nvarchar(128)) AS server_name,
    @guid AS service_broker_guid, @group AS group_database_id;

IF @enabled = 1
BEGIN
    SET @max_lsn = sys.fn_cdc_get_max_lsn();
    SELECT @max_lsn AS max_lsn, sys.fn_cdc_map_lsn_to_time(@max_lsn) AS max_lsn_at;

    -- Before the low ends (read_tables.sql): cleanup raises those first, so that an entry which is missing above a low end
    -- that was read later has not been cleaned up.
    WITH numbered (number) AS (
        SELECT 0 WHERE DATALENGTH(@positions) > 0
        UNION ALL
        SELECT number + 1 FROM numbered WHERE (number + 1) * 10 < DATALENGTH(@positions)
    )
    SELECT CAST(SUBSTRING(@positions, number * 10 + 1, 10) AS binary(10)) AS lsn,
        sys.fn_cdc_map_lsn_to_time(CAST(SUBSTRING(@positions, number * 10 + 1, 10) AS binary(10))) AS committed_at
    FROM numbered
    OPTION (MAXRECURSION 0);

    IF @with_instances = 1
        EXEC sys.sp_cdc_help_change_data_capture;
END
