-- The number of changes that each of some tables has in its interval, counted up to a limit: one seek and as many rows.
-- Parameters: the limit; for each table the object_id of its change table (four bytes), after_lsn and to_lsn (ten bytes
-- each). A table that is locked or no longer exists has no row.
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @limit int = ?, @asked varbinary(max) = ?;
DECLARE @counts TABLE (number int NOT NULL, changes int NOT NULL);
DECLARE @number int = 0, @statement nvarchar(max), @after binary(10), @to binary(10), @changes int, @locked int = 0;

WHILE @number * 24 < DATALENGTH(@asked) AND @locked < 10
BEGIN
    SELECT @statement = N'SELECT @changes = COUNT(*) FROM (SELECT TOP (@limit) 1 AS one FROM cdc.'
            + QUOTENAME(OBJECT_NAME(CAST(CAST(SUBSTRING(@asked, @number * 24 + 1, 4) AS binary(4)) AS int)))
            + N' AS c WHERE c.[__$start_lsn] > @after AND c.[__$start_lsn] <= @to) AS counted',
        @after = CAST(SUBSTRING(@asked, @number * 24 + 5, 10) AS binary(10)),
        @to = CAST(SUBSTRING(@asked, @number * 24 + 15, 10) AS binary(10)),
        @changes = NULL;
    BEGIN TRY
        IF @statement IS NOT NULL
            EXEC sys.sp_executesql @statement,
                N'@limit int, @after binary(10), @to binary(10), @changes int OUTPUT',
                @limit = @limit, @after = @after, @to = @to, @changes = @changes OUTPUT;
        INSERT INTO @counts (number, changes) SELECT @number, @changes WHERE @changes IS NOT NULL;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222
            THROW;
        SET @locked = @locked + 1;
        SET LOCK_TIMEOUT 1000;
    END CATCH;
    SET @number = @number + 1;
END;

SELECT number, changes FROM @counts;
