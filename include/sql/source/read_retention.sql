-- How long changes are kept, and how far the log has come. Needs db_owner, as everything that changes the jobs does.
-- Result sets: 1 the newest entry of the log, 2 the jobs.
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;

SELECT MAX(tran_end_time) AS newest_entry_at FROM cdc.lsn_time_mapping;

EXEC sys.sp_cdc_help_jobs;
