-- What the server's clock shows, or showed, at a moment in UTC, given as ISO 8601 text. NULL where the server cannot tell
-- its time zone (before SQL Server 2022); then there is only today's offset to go by.
SET NOCOUNT ON;
DECLARE @utc datetime2(6) = CONVERT(datetime2(6), ?, 126), @local datetime2(6);

BEGIN TRY
    EXEC sys.sp_executesql
        N'SELECT @local = CAST(@utc AT TIME ZONE N''UTC'' AT TIME ZONE CURRENT_TIMEZONE_ID() AS datetime2(6))',
        N'@utc datetime2(6), @local datetime2(6) OUTPUT', @utc = @utc, @local = @local OUTPUT;
END TRY
BEGIN CATCH
    SET @local = NULL;
END CATCH;

SELECT @local AS local_at, DATEDIFF(minute, GETUTCDATE(), GETDATE()) AS offset_minutes;
