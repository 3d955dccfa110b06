-- Features that conflict with change data capture: for ``doctor``, with whatever rights the login has. What is hidden
-- is NULL, or has no row. Result sets: 1 the database, 2 partitioned tables, 3 modules that truncate; where CDC is on:
-- 4 instances, 5 columns of tracked and of change tables; for db_owner: 6 instances that let partitions be switched.
SET NOCOUNT ON;
-- A lock timeout ends the batch, and not only its statement: each later one would wait as long again.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @accelerated bit, @enabled bit;
SELECT @enabled = is_cdc_enabled FROM sys.databases WHERE name = DB_NAME();

BEGIN TRY
    EXEC sys.sp_executesql
        N'SELECT @accelerated = is_accelerated_database_recovery_on FROM sys.databases WHERE name = DB_NAME()',
        N'@accelerated bit OUTPUT', @accelerated = @accelerated OUTPUT;
END TRY
BEGIN CATCH
    SET @accelerated = 0; -- there is no such thing before SQL Server 2019
END CATCH;

SELECT @accelerated AS is_accelerated_recovery_on,
    CASE WHEN SCHEMA_ID(N'cdc') IS NULL THEN 0 ELSE 1 END AS has_schema,
    CASE WHEN DATABASE_PRINCIPAL_ID(N'cdc') IS NULL THEN 0 ELSE 1 END AS has_user,
    IS_ROLEMEMBER(N'db_owner', N'cdc') AS is_user_owner,
    HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DEFINITION') AS sees_policies;

SELECT s.name AS schema_name, t.name AS table_name
FROM sys.tables AS t
JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE t.is_ms_shipped = 0
    AND EXISTS (SELECT 1 FROM sys.indexes AS i JOIN sys.data_spaces AS d ON d.data_space_id = i.data_space_id
        WHERE i.object_id = t.object_id AND i.index_id IN (0, 1) AND d.type = N'PS');

SELECT s.name AS schema_name, o.name AS module_name, m.definition
FROM sys.sql_modules AS m
JOIN sys.objects AS o ON o.object_id = m.object_id
JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE o.is_ms_shipped = 0 AND UPPER(m.definition) LIKE N'%TRUNCATE%TABLE%';

IF @enabled = 1
BEGIN
    EXEC sys.sp_cdc_help_change_data_capture;

    SELECT c.object_id, c.name AS column_name, c.column_id, y.name AS type_name, c.max_length, c.precision, c.scale,
        c.is_nullable, c.is_computed
    FROM sys.columns AS c
    JOIN sys.tables AS t ON t.object_id = c.object_id
    -- The system type below an alias type; CLR types (hierarchyid, geography) share number 240 and keep their own.
    JOIN sys.types AS y
        ON y.user_type_id = CASE WHEN c.system_type_id = 240 THEN c.user_type_id ELSE c.system_type_id END
    WHERE t.is_tracked_by_cdc = 1 OR (t.schema_id = SCHEMA_ID(N'cdc') AND t.name LIKE N'%[_]CT')
    ORDER BY c.object_id, c.column_id;

    IF IS_MEMBER(N'db_owner') = 1
        SELECT capture_instance, partition_switch FROM cdc.change_tables;
END
