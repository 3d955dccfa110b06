-- The details of one capture instance that a snapshot does not have: its captured columns with the column_id they were
-- captured under, its DDL history, and the columns that its source table has now. Parameters: the instance, and the
-- quoted name of its table. Needs no more than SELECT on the captured columns. Result sets: 1 captured, 2 history, 3
-- columns.
SET NOCOUNT ON;
-- A lock timeout ends the batch, and not only its statement: each later one would wait as long again.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @instance sysname = ?, @table nvarchar(517) = ?;

EXEC sys.sp_cdc_get_captured_columns @capture_instance = @instance;

EXEC sys.sp_cdc_get_ddl_history @capture_instance = @instance;

SELECT c.name AS column_name, c.column_id, y.name AS type_name, c.max_length, c.precision, c.scale, c.is_nullable,
    c.is_computed
FROM sys.columns AS c
-- The system type below an alias type; CLR types (hierarchyid, geography) share number 240 and keep their own.
JOIN sys.types AS y
    ON y.user_type_id = CASE WHEN c.system_type_id = 240 THEN c.user_type_id ELSE c.system_type_id END
WHERE c.object_id = OBJECT_ID(@table)
ORDER BY c.column_id;
