-- The tables with a capture instance that the login may see: for the patterns of a pipeline.
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;

SELECT SCHEMA_NAME(t.schema_id) AS schema_name, t.name AS table_name
FROM sys.tables AS t
WHERE t.is_tracked_by_cdc = 1;
