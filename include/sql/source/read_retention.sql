-- How long changes are kept, and how far the log has come. Needs db_owner, as everything that changes the jobs does.
-- Result sets: 1 the newest entry of the log, and whether this is a copy that can only be read, 2 the jobs.
SET NOCOUNT ON;
-- An error ends the batch: the statements after it would hide its number.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

SELECT MAX(tran_end_time) AS newest_entry_at,
    CASE WHEN CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(128)) = N'READ_ONLY' THEN 1 ELSE 0 END
        AS is_replica
FROM cdc.lsn_time_mapping;

EXEC sys.sp_cdc_help_jobs;
