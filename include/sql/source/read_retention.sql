-- How long changes are kept, how far the log has come, and what the change tables hold. Needs db_owner, as everything
-- that changes the jobs does.
-- Result sets: 1 the newest entry of the log, 2 the jobs, 3 the capture instances with rows and bytes.
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;

SELECT MAX(tran_end_time) AS newest_entry_at FROM cdc.lsn_time_mapping;

EXEC sys.sp_cdc_help_jobs;

SELECT c.capture_instance, sys.fn_cdc_get_min_lsn(c.capture_instance) AS low_end,
    (SELECT SUM(p.row_count) FROM sys.dm_db_partition_stats AS p
        WHERE p.object_id = c.object_id AND p.index_id IN (0, 1)) AS change_rows,
    (SELECT SUM(p.used_page_count) FROM sys.dm_db_partition_stats AS p
        WHERE p.object_id = c.object_id) * 8192 AS size_bytes
FROM cdc.change_tables AS c
ORDER BY c.capture_instance;
