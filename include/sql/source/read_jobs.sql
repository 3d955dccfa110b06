-- The jobs of this database as sys.sp_cdc_help_jobs shows them, with as little right as will do: none for the
-- procedure but db_owner, else SELECT on the table behind it. One result set, or none where nothing may be seen; its
-- last two columns are retention and threshold in every version, before them some have one more.
SET NOCOUNT ON;
-- An error ends the batch: the statements after it would hide its number.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @columns nvarchar(200) = N'job_id, job_type, maxtrans, maxscans, continuous, pollinginterval, retention, threshold';
DECLARE @statement nvarchar(600);

IF (SELECT is_cdc_enabled FROM sys.databases WHERE name = DB_NAME()) = 1
BEGIN
    IF IS_MEMBER(N'db_owner') = 1
        EXEC sys.sp_cdc_help_jobs;
    ELSE IF HAS_PERMS_BY_NAME(N'cdc.cdc_jobs', N'OBJECT', N'SELECT') = 1
    BEGIN
        SET @statement = N'SELECT ' + @columns + N' FROM cdc.cdc_jobs';
        EXEC sys.sp_executesql @statement;
    END
    -- As text, because Azure SQL Database refuses a batch that so much as names msdb.
    ELSE IF CAST(SERVERPROPERTY('EngineEdition') AS int) NOT IN (5, 12)
        AND HAS_PERMS_BY_NAME(N'msdb.dbo.cdc_jobs', N'OBJECT', N'SELECT') = 1
    BEGIN
        SET @statement = N'SELECT ' + @columns + N' FROM msdb.dbo.cdc_jobs WHERE database_id = DB_ID()';
        EXEC sys.sp_executesql @statement;
    END
END
