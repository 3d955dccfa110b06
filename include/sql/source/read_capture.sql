-- What a run must know of capture and cleanup. Needs db_owner, as everything that changes the jobs does; whether the
-- capture job runs, and how full the log is, needs rights at the server, and is NULL without them.
-- Result sets: 1 the database, 2 its jobs, 3 the newest log scan, 4 the newest error of a scan.
SET NOCOUNT ON;
-- An error ends the batch: the statements after it would hide its number.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @edition int = CAST(SERVERPROPERTY('EngineEdition') AS int), @running bit, @used float,
    @newest datetime, @ahead int = 0;

-- As text, because Azure SQL Database refuses a batch that so much as names msdb.
IF @edition NOT IN (5, 12)
    AND HAS_PERMS_BY_NAME(N'msdb.dbo.cdc_jobs', N'OBJECT', N'SELECT') = 1
    AND HAS_PERMS_BY_NAME(N'msdb.dbo.sysjobactivity', N'OBJECT', N'SELECT') = 1
    EXEC sys.sp_executesql
        N'SELECT @running = MAX(CASE WHEN a.start_execution_date IS NOT NULL AND a.stop_execution_date IS NULL THEN 1 ELSE 0 END)
          FROM msdb.dbo.cdc_jobs AS j
          LEFT JOIN msdb.dbo.sysjobactivity AS a
              ON a.job_id = j.job_id AND a.session_id = (SELECT MAX(session_id) FROM msdb.dbo.sysjobactivity)
          WHERE j.database_id = DB_ID() AND j.job_type = N''capture''',
        N'@running bit OUTPUT',
        @running = @running OUTPUT;

BEGIN TRY
    EXEC sys.sp_executesql
        N'SELECT @used = used_log_space_in_percent FROM sys.dm_db_log_space_usage',
        N'@used float OUTPUT',
        @used = @used OUTPUT;
END TRY
BEGIN CATCH
    SET @used = NULL; -- not without VIEW SERVER STATE: only the age of the log's oldest entry remains
END CATCH;

-- By how much the clock was set forward in the last two hours, as when summer time begins: what was noted before that
-- seems so much older. 0 where the server does not report its time zone (before SQL Server 2022).
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

SELECT @newest = MAX(tran_end_time) FROM cdc.lsn_time_mapping;

SELECT DB_NAME() AS database_name, @edition AS engine_edition, GETDATE() AS taken_at, @running AS capture_running,
    d.log_reuse_wait_desc, @used AS log_used_percent, @newest AS newest_entry_at, @ahead AS clock_ahead_minutes,
    CASE WHEN CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(128)) = N'READ_ONLY' THEN 1 ELSE 0 END
        AS is_replica
FROM sys.databases AS d
WHERE d.name = DB_NAME();

EXEC sys.sp_cdc_help_jobs;

SELECT TOP (1) end_time, tran_count, error_count, latency
FROM sys.dm_cdc_log_scan_sessions
WHERE session_id > 0
ORDER BY session_id DESC;

SELECT TOP (1) error_number, error_message FROM sys.dm_cdc_errors ORDER BY entry_time DESC;
