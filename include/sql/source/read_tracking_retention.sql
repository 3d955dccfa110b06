-- How long changes are kept, and what the readers of a database with change tracking have not read. Parameter: the versions
-- up to which they have read, eight bytes each, one after the other. Result sets: 1 the current version, whether old changes
-- are cleaned up, and the retention (the unit is 1 for minutes, 2 for hours, 3 for days), 2 for each version the commit time
-- of the first one above it: the present time where there is none, NULL where the login may not see it (VIEW DATABASE STATE).
SET NOCOUNT ON;
-- An error ends the batch: the statements after it would hide its number.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @versions varbinary(max) = ?;
DECLARE @current bigint = CHANGE_TRACKING_CURRENT_VERSION(),
    @sees_times int = HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE');

SELECT @current AS current_version, MAX(CAST(is_auto_cleanup_on AS int)) AS is_auto_cleanup_on,
    MAX(retention_period) AS retention_period, MAX(CAST(retention_period_units AS int)) AS retention_period_units
FROM sys.change_tracking_databases WHERE database_id = DB_ID();

IF @sees_times = 1
    EXEC sys.sp_executesql
        N'WITH numbered (number) AS (
            SELECT 0 WHERE DATALENGTH(@versions) > 0
            UNION ALL
            SELECT number + 1 FROM numbered WHERE (number + 1) * 8 < DATALENGTH(@versions)
        ), given (version) AS (
            SELECT CAST(CAST(SUBSTRING(@versions, number * 8 + 1, 8) AS binary(8)) AS bigint) FROM numbered
        )
        SELECT g.version, CASE WHEN g.version >= @current THEN GETDATE() ELSE
            (SELECT TOP (1) t.commit_time FROM sys.dm_tran_commit_table AS t WHERE t.commit_ts > g.version
                ORDER BY t.commit_ts) END AS first_unread_at
        FROM given AS g
        OPTION (MAXRECURSION 0)',
        N'@versions varbinary(max), @current bigint', @versions = @versions, @current = @current;
ELSE
    WITH numbered (number) AS (
        SELECT 0 WHERE DATALENGTH(@versions) > 0
        UNION ALL
        SELECT number + 1 FROM numbered WHERE (number + 1) * 8 < DATALENGTH(@versions)
    ), given (version) AS (
        SELECT CAST(CAST(SUBSTRING(@versions, number * 8 + 1, 8) AS binary(8)) AS bigint) FROM numbered
    )
    SELECT version, CASE WHEN version >= @current THEN GETDATE() END AS first_unread_at
    FROM given
    OPTION (MAXRECURSION 0);
