-- All tables with change tracking that the login may see, by their present names.
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;

SELECT SCHEMA_NAME(t.schema_id) AS schema_name, t.name AS table_name, t.object_id, t.create_date, c.begin_version
FROM sys.change_tracking_tables AS c
JOIN sys.tables AS t ON t.object_id = c.object_id;
