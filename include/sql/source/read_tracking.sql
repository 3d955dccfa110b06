-- The database of a source that is read by change tracking, in one round trip and with one constant text. Parameter: the
-- versions to look up, eight bytes each, one after the other. Result sets: 1 database, 2 commit times of the newest version
-- and of those that were asked for. Commit times need VIEW DATABASE STATE: without it there are none.
SET NOCOUNT ON;
-- An error ends the batch: the statements after it would hide its number.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @versions varbinary(max) = ?;
DECLARE @current bigint, @guid uniqueidentifier, @group uniqueidentifier,
    @sees_times int = HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE');
-- Both identifiers move with the database: the first stays through renames, restores and failovers, the second is the
-- same on every replica of an availability group, and NULL outside of one.
SELECT @guid = service_broker_guid, @group = group_database_id FROM sys.databases WHERE name = DB_NAME();
SET @current = CHANGE_TRACKING_CURRENT_VERSION();

SELECT DB_NAME() AS database_name, @current AS current_version, GETDATE() AS taken_at,
    CAST(SERVERPROPERTY('ServerName') AS nvarchar(128)) AS server_name, @guid AS service_broker_guid,
    @group AS group_database_id;

-- Before the oldest valid versions (read_tracked_tables.sql): cleanup raises those first, so that an entry which is missing
-- above one that was read later has not been cleaned up.
IF @sees_times = 1
    EXEC sys.sp_executesql
        N'WITH numbered (number) AS (
            SELECT 0 WHERE DATALENGTH(@versions) > 0
            UNION ALL
            SELECT number + 1 FROM numbered WHERE (number + 1) * 8 < DATALENGTH(@versions)
        ), wanted (version) AS (
            SELECT CAST(CAST(SUBSTRING(@versions, number * 8 + 1, 8) AS binary(8)) AS bigint) FROM numbered
            UNION SELECT @current
        )
        SELECT w.version, t.commit_time
        FROM wanted AS w
        LEFT JOIN sys.dm_tran_commit_table AS t ON t.commit_ts = w.version
        OPTION (MAXRECURSION 0)',
        N'@versions varbinary(max), @current bigint',
        @versions = @versions, @current = @current;
