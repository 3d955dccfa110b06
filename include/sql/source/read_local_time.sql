-- What the server's clock shows, or showed, around a moment in UTC, given as ISO 8601 text: the earliest time that it
-- shows from then on, and the latest that it showed until then. They differ where it is set back within two hours,
-- which happens on a quarter of an hour of UTC. NULL where the server does not report its time zone (before SQL Server
-- 2022); then only today's offset is known.
SET NOCOUNT ON;
DECLARE @utc datetime2(6) = CONVERT(datetime2(6), ?, 126), @earliest datetime2(6), @latest datetime2(6);
DECLARE @quarter datetime2(6) =
    DATEADD(minute, DATEDIFF(minute, '20000101', @utc) / 15 * 15, CAST('20000101' AS datetime2(6)));

BEGIN TRY
    EXEC sys.sp_executesql
        N'SELECT @earliest = MIN(CAST(m.at AT TIME ZONE N''UTC'' AT TIME ZONE CURRENT_TIMEZONE_ID() AS datetime2(6)))
          FROM (VALUES (@utc), (DATEADD(minute, 15, @quarter)), (DATEADD(minute, 30, @quarter)),
              (DATEADD(minute, 45, @quarter)), (DATEADD(minute, 60, @quarter)), (DATEADD(minute, 75, @quarter)),
              (DATEADD(minute, 90, @quarter)), (DATEADD(minute, 105, @quarter)), (DATEADD(minute, 120, @quarter))) AS m (at);
          SELECT @latest = MAX(CAST(m.at AT TIME ZONE N''UTC'' AT TIME ZONE CURRENT_TIMEZONE_ID() AS datetime2(6)))
          FROM (VALUES (@utc), (DATEADD(microsecond, -1, @quarter)), (DATEADD(microsecond, -1, DATEADD(minute, -15, @quarter))),
              (DATEADD(microsecond, -1, DATEADD(minute, -30, @quarter))), (DATEADD(microsecond, -1, DATEADD(minute, -45, @quarter))),
              (DATEADD(microsecond, -1, DATEADD(minute, -60, @quarter))),
              (DATEADD(microsecond, -1, DATEADD(minute, -75, @quarter))),
              (DATEADD(microsecond, -1, DATEADD(minute, -90, @quarter))),
              (DATEADD(microsecond, -1, DATEADD(minute, -105, @quarter)))) AS m (at);',
        N'@utc datetime2(6), @quarter datetime2(6), @earliest datetime2(6) OUTPUT, @latest datetime2(6) OUTPUT',
        @utc = @utc, @quarter = @quarter, @earliest = @earliest OUTPUT, @latest = @latest OUTPUT;
END TRY
BEGIN CATCH
    SELECT @earliest = NULL, @latest = NULL;
END CATCH;

SELECT @earliest AS earliest_at, @latest AS latest_at, DATEDIFF(minute, GETUTCDATE(), GETDATE()) AS offset_minutes;
