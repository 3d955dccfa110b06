-- The change tracking of some tables, with one constant text. Sent after read_tracking.sql and read_tables.sql. Parameters:
-- the object_ids of the tables, four bytes each; the version after which changes are looked for, NULL for none. Result set:
-- one row for each table that is tracked and visible. has_changes is NULL where the login may not read the changes, or none
-- are looked for.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @tables varbinary(max) = ?, @after bigint = ?;
DECLARE @id int, @statement nvarchar(max), @last bigint, @locked int = 0;
DECLARE @tracked TABLE (object_id int NOT NULL PRIMARY KEY, begin_version bigint NOT NULL, side_table_id int NULL,
    is_readable int NOT NULL, is_end_known int NOT NULL, last_version bigint NULL, min_valid_version bigint NULL);

WITH numbered (number) AS (
    SELECT 0 WHERE DATALENGTH(@tables) > 0
    UNION ALL
    SELECT number + 1 FROM numbered WHERE (number + 1) * 4 < DATALENGTH(@tables)
), given (object_id) AS (
    SELECT CAST(CAST(SUBSTRING(@tables, number * 4 + 1, 4) AS binary(4)) AS int) FROM numbered
)
INSERT INTO @tracked (object_id, begin_version, side_table_id, is_readable, is_end_known)
SELECT t.object_id, t.begin_version,
    -- It is another one when the tracking has begun again, be it at the same version. NULL: the login may not see it.
    (SELECT MAX(i.object_id) FROM sys.internal_tables AS i
     WHERE i.parent_object_id = t.object_id AND i.internal_type = 209),
    -- Without SELECT, CHANGETABLE would end the batch, and with it the snapshot of the other tables.
    COALESCE(HAS_PERMS_BY_NAME(n.name, N'OBJECT', N'VIEW CHANGE TRACKING'), 0)
        * COALESCE(HAS_PERMS_BY_NAME(n.name, N'OBJECT', N'SELECT'), 0), 0
FROM given AS g
JOIN sys.change_tracking_tables AS t ON t.object_id = g.object_id
CROSS APPLY (SELECT QUOTENAME(OBJECT_SCHEMA_NAME(t.object_id)) + N'.' + QUOTENAME(OBJECT_NAME(t.object_id)) AS name) AS n
OPTION (MAXRECURSION 0);

-- The newest change of each table. Where one has locked rows, its end stays unknown; after ten such tables, so do the others.
SELECT @id = MIN(object_id) FROM @tracked WHERE is_readable = 1 AND @after IS NOT NULL;
WHILE @id IS NOT NULL AND @locked < 10
BEGIN
    SELECT @last = NULL, @statement = N'SELECT @last = MAX(c.SYS_CHANGE_VERSION) FROM CHANGETABLE(CHANGES '
        + QUOTENAME(OBJECT_SCHEMA_NAME(@id)) + N'.' + QUOTENAME(OBJECT_NAME(@id)) + N', @after) AS c';
    BEGIN TRY
        EXEC sys.sp_executesql @statement, N'@after bigint, @last bigint OUTPUT', @after = @after, @last = @last OUTPUT;
        -- Without a name, as of a table that was dropped meanwhile, nothing was looked for.
        UPDATE @tracked SET last_version = @last, is_end_known = 1 WHERE object_id = @id AND @statement IS NOT NULL;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222
            THROW;
        SET @locked = @locked + 1;
        SET LOCK_TIMEOUT 1000;
    END CATCH;
    SELECT @id = MIN(object_id) FROM @tracked WHERE is_readable = 1 AND object_id > @id;
END;
SET LOCK_TIMEOUT 10000;

-- After the newest changes: those that a cleanup removed meanwhile are not above these versions.
UPDATE @tracked SET min_valid_version = CHANGE_TRACKING_MIN_VALID_VERSION(object_id);

SELECT a.object_id, a.begin_version, a.side_table_id, a.is_readable, a.is_end_known, a.last_version, a.min_valid_version,
    t.create_date
FROM @tracked AS a
JOIN sys.tables AS t ON t.object_id = a.object_id;
