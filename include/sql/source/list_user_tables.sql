-- The tables that the login may see: for `floodmark init`. Result sets: 1 the database, 2 tables, 3 columns of keys.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

SELECT name, is_cdc_enabled FROM sys.databases WHERE name = DB_NAME();

SELECT s.name AS schema_name, t.name AS table_name, t.object_id, t.is_tracked_by_cdc,
    (SELECT SUM(p.rows) FROM sys.partitions AS p WHERE p.object_id = t.object_id AND p.index_id IN (0, 1)) AS row_count
FROM sys.tables AS t
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE t.is_ms_shipped = 0 AND s.name <> N'cdc'
ORDER BY s.name, t.name;

SELECT i.object_id, c.name AS column_name
FROM sys.indexes AS i
JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.is_primary_key = 1
ORDER BY i.object_id, k.key_ordinal;
