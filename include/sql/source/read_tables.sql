-- The catalog of some tables and of their change tables, in one round trip and with one constant text. Sent after
-- read_snapshot.sql. Nothing is read of other tables: an open transaction that creates or changes one of them holds locks
-- on its rows in the catalog. Parameters: the quoted names of the tables, each as two bytes with its length in bytes and
-- then UTF-16 text; the object_ids of their change tables, four bytes each; the highest LSN of read_snapshot.sql. Result
-- sets: 1 tables, 2 change tables that the login may see, 3 columns of both, 4 primary keys, 5 columns that the login
-- reads through a mask, 6 enabled filter predicates, as far as the login may see them.
SET NOCOUNT ON;
-- A lock timeout ends the batch, and not only its statement: each later one would wait as long again.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @names varbinary(max) = ?, @change_tables varbinary(max) = ?, @max_lsn binary(10) = ?;
DECLARE @id int, @statement nvarchar(max), @last_lsn binary(10), @locked int = 0;
DECLARE @tables TABLE (object_id int NOT NULL PRIMARY KEY);
DECLARE @captures TABLE (object_id int NOT NULL PRIMARY KEY, name nvarchar(128) NOT NULL, is_readable int NULL,
    is_end_known int NOT NULL, last_lsn binary(10) NULL, min_lsn binary(10) NULL);

WITH named (place, size) AS (
    SELECT 1, CAST(CAST(SUBSTRING(@names, 1, 2) AS binary(2)) AS int) WHERE DATALENGTH(@names) > 0
    UNION ALL
    SELECT place + 2 + size, CAST(CAST(SUBSTRING(@names, place + 2 + size, 2) AS binary(2)) AS int)
    FROM named WHERE place + 2 + size < DATALENGTH(@names)
), found (object_id) AS (
    SELECT OBJECT_ID(CAST(SUBSTRING(@names, place + 2, size) AS nvarchar(517))) FROM named
)
INSERT INTO @tables (object_id)
SELECT DISTINCT object_id FROM found WHERE object_id IS NOT NULL
OPTION (MAXRECURSION 0);

WITH numbered (number) AS (
    SELECT 0 WHERE DATALENGTH(@change_tables) > 0
    UNION ALL
    SELECT number + 1 FROM numbered WHERE (number + 1) * 4 < DATALENGTH(@change_tables)
), given (object_id) AS (
    SELECT CAST(CAST(SUBSTRING(@change_tables, number * 4 + 1, 4) AS binary(4)) AS int) FROM numbered
)
INSERT INTO @captures (object_id, name, is_end_known)
SELECT object_id, OBJECT_NAME(object_id), 0 FROM given WHERE OBJECT_NAME(object_id) IS NOT NULL
OPTION (MAXRECURSION 0);

UPDATE @captures SET is_readable = HAS_PERMS_BY_NAME(N'cdc.' + QUOTENAME(name), N'OBJECT', N'SELECT');

-- The newest change of each table, one seek from the highest LSN downwards: what a scan of the log writes at this moment
-- is above it and locked. Where a scan has locked the whole table, its end stays unknown; after ten such tables, so do
-- the others.
SELECT @id = MIN(object_id) FROM @captures WHERE is_readable = 1;
WHILE @id IS NOT NULL AND @locked < 10
BEGIN
    SELECT @last_lsn = NULL, @statement = N'SELECT TOP (1) @last_lsn = c.[__$start_lsn] FROM cdc.'
        + QUOTENAME(name) + N' AS c WHERE c.[__$start_lsn] <= @max_lsn ORDER BY c.[__$start_lsn] DESC'
    FROM @captures WHERE object_id = @id;
    BEGIN TRY
        EXEC sys.sp_executesql @statement, N'@max_lsn binary(10), @last_lsn binary(10) OUTPUT',
            @max_lsn = @max_lsn, @last_lsn = @last_lsn OUTPUT;
        UPDATE @captures SET last_lsn = @last_lsn, is_end_known = 1 WHERE object_id = @id;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222
            THROW;
        SET @locked = @locked + 1;
        SET LOCK_TIMEOUT 1000;
    END CATCH;
    SELECT @id = MIN(object_id) FROM @captures WHERE is_readable = 1 AND object_id > @id;
END;
SET LOCK_TIMEOUT 10000;

-- After the newest changes: changes that a cleanup removed meanwhile are below these low ends.
UPDATE @captures SET min_lsn = sys.fn_cdc_get_min_lsn(LEFT(name, LEN(name) - 3));

-- The order of the joins is fixed, and each is a seek: a scan of the catalog would wait for rows of other tables.
SELECT SCHEMA_NAME(t.schema_id) AS schema_name, t.name AS table_name, t.object_id, t.is_tracked_by_cdc,
    (SELECT MAX(c.column_id) FROM sys.columns AS c WHERE c.object_id = t.object_id) AS max_column_id
FROM @tables AS a
JOIN sys.tables AS t ON t.object_id = a.object_id
WHERE t.is_ms_shipped = 0
OPTION (FORCE ORDER, LOOP JOIN);

SELECT object_id, name, min_lsn, is_readable, sys.fn_cdc_map_lsn_to_time(min_lsn) AS min_lsn_at, is_end_known, last_lsn
FROM @captures;

SELECT c.object_id, c.name AS column_name, y.name AS type_name, c.max_length, c.precision, c.scale, c.is_nullable,
    c.is_computed, c.collation_name, c.column_id
FROM (SELECT object_id FROM @tables UNION SELECT object_id FROM @captures) AS a
JOIN sys.columns AS c ON c.object_id = a.object_id
-- The system type below an alias type; CLR types (hierarchyid, geography) share number 240 and keep their own.
JOIN sys.types AS y
    ON y.user_type_id = CASE WHEN c.system_type_id = 240 THEN c.user_type_id ELSE c.system_type_id END
ORDER BY c.object_id, c.column_id
OPTION (FORCE ORDER, LOOP JOIN);

SELECT i.object_id, c.name AS column_name
FROM @tables AS a
JOIN sys.indexes AS i ON i.object_id = a.object_id
JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.is_primary_key = 1
ORDER BY i.object_id, k.key_ordinal
OPTION (FORCE ORDER, LOOP JOIN);

-- Before SQL Server 2022 UNMASK is a right on the database only, and a question about an object is NULL.
SELECT c.object_id, c.name AS column_name
FROM @tables AS a
JOIN sys.columns AS c ON c.object_id = a.object_id
WHERE c.is_masked = 1
    AND COALESCE(HAS_PERMS_BY_NAME(QUOTENAME(OBJECT_SCHEMA_NAME(c.object_id)) + N'.' + QUOTENAME(OBJECT_NAME(c.object_id)),
        N'OBJECT', N'UNMASK', c.name, N'COLUMN'), HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'UNMASK'), 0) = 0
ORDER BY c.object_id, c.column_id
OPTION (FORCE ORDER, LOOP JOIN);

SELECT r.target_object_id, SCHEMA_NAME(p.schema_id) AS schema_name, p.name AS policy_name
FROM @tables AS a
JOIN sys.security_predicates AS r ON r.target_object_id = a.object_id
JOIN sys.security_policies AS p ON p.object_id = r.object_id
WHERE p.is_enabled = 1 AND r.predicate_type_desc = N'FILTER'
ORDER BY r.target_object_id, schema_name, policy_name;
