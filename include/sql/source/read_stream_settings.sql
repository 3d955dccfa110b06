-- How the server streams the database, with one constant text. Result sets, each as far as the server has it and the login
-- may see it: whether streaming is enabled (is_event_stream_enabled), the groups of
-- sys.sp_help_change_feed_table_groups, and the newest failed delivery (error_number, entry_time).
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

BEGIN TRY
    EXEC sys.sp_executesql N'SELECT is_event_stream_enabled FROM sys.databases WHERE database_id = DB_ID()';
END TRY
BEGIN CATCH
    -- Servers before SQL Server 2025 have no such column.
    IF ERROR_NUMBER() <> 207
        THROW;
END CATCH;
BEGIN TRY
    EXEC sys.sp_executesql N'EXEC sys.sp_help_change_feed_table_groups';
END TRY
BEGIN CATCH
    -- There is no such procedure, the login may not call it, or nothing is enabled.
    IF ERROR_NUMBER() NOT IN (229, 2812, 23624, 23626, 23636)
        THROW;
END CATCH;
BEGIN TRY
    EXEC sys.sp_executesql N'SELECT TOP (1) error_number, entry_time FROM sys.dm_change_feed_errors ORDER BY entry_time DESC';
END TRY
BEGIN CATCH
    -- There is no such view, or the login may not see the state of the database.
    IF ERROR_NUMBER() NOT IN (208, 229, 262, 297, 300)
        THROW;
END CATCH;
