-- The rows that may lack an added column's values: the rows of its table, without counting them, and the changes
-- captured since, up to one more than {limit}. Both names are quoted; the change table's is the server's own.
-- Parameters: the table, and the LSN of the DDL.
SELECT (SELECT SUM(p.rows) FROM sys.partitions AS p
        WHERE p.object_id = OBJECT_ID(?) AND p.index_id IN (0, 1)) AS table_rows,
    (SELECT COUNT(*) FROM (
        SELECT TOP ({limit} + 1) 1 AS one FROM {change_table} AS c
        WHERE c.[__$start_lsn] > ? AND c.[__$operation] IN (2, 4)) AS counted) AS change_rows
