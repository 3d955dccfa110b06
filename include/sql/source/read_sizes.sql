-- How large the change tables are, with no more right than SELECT on each of them: sys.partitions and
-- sys.allocation_units show each login what it may see (sys.dm_db_partition_stats would need VIEW DATABASE STATE). A
-- hidden table has no row, or NULL. Result sets, where CDC is on: 1 instances, 2 change tables with rows and bytes.
SET NOCOUNT ON;
-- An error ends the batch: the statements after it would hide its number.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

IF (SELECT is_cdc_enabled FROM sys.databases WHERE name = DB_NAME()) = 1
BEGIN
    EXEC sys.sp_cdc_help_change_data_capture;

    SELECT t.object_id, sys.fn_cdc_get_min_lsn(LEFT(t.name, LEN(t.name) - 3)) AS low_end,
        (SELECT SUM(p.rows) FROM sys.partitions AS p
            WHERE p.object_id = t.object_id AND p.index_id IN (0, 1)) AS change_rows,
        (SELECT SUM(a.used_pages) FROM sys.partitions AS p
            JOIN sys.allocation_units AS a
                ON a.container_id = CASE a.type WHEN 2 THEN p.partition_id ELSE p.hobt_id END
            WHERE p.object_id = t.object_id) * 8192 AS size_bytes
    FROM sys.tables AS t
    WHERE t.schema_id = SCHEMA_ID(N'cdc') AND t.name LIKE N'%[_]CT';
END
