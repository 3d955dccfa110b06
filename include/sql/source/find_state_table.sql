-- The table in which SSIS keeps its CDC states, as the server spells its name, where it has the columns of one.
-- Parameter: the quoted name of the table.
SELECT s.name AS schema_name, t.name AS table_name
FROM sys.tables AS t
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE t.object_id = OBJECT_ID(?)
    AND (SELECT COUNT(*) FROM sys.columns AS c WHERE c.object_id = t.object_id AND c.name IN (N'name', N'state')) = 2
