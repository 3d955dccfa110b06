-- How some tables are streamed, with one constant text. Sent after read_tables.sql. Parameter: the object_ids of the tables,
-- four bytes each. Result sets: one of sys.sp_help_change_feed_table for each table, as far as the login may see it; none on
-- a server without change event streaming.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

DECLARE @tables varbinary(max) = ?;
DECLARE @place int = 0, @id int, @schema nvarchar(128), @name nvarchar(128);

WHILE @place < DATALENGTH(@tables)
BEGIN
    SET @id = CAST(CAST(SUBSTRING(@tables, @place + 1, 4) AS binary(4)) AS int);
    SELECT @schema = OBJECT_SCHEMA_NAME(@id), @name = OBJECT_NAME(@id), @place = @place + 4;
    BEGIN TRY
        EXEC sys.sp_executesql
            N'EXEC sys.sp_help_change_feed_table @source_schema = @schema, @source_name = @name',
            N'@schema nvarchar(128), @name nvarchar(128)', @schema = @schema, @name = @name;
    END TRY
    BEGIN CATCH
        -- There is no such procedure, the login may not call it, or nothing is streamed: so it is for all tables.
        IF ERROR_NUMBER() NOT IN (229, 2812, 23624, 23626, 23636)
            THROW;
        BREAK;
    END CATCH;
END;
