-- The low end is raised first, and the rows below it deleted then, in statements of so many rows.
-- Parameters: capture instance, low water mark, rows. One row: whether deleting met a deadlock or a lock timeout.
SET NOCOUNT ON;
DECLARE @failed bit = 0;
EXEC sys.sp_cdc_cleanup_change_table @capture_instance = ?, @low_water_mark = ?, @threshold = ?,
    @fCleanupFailed = @failed OUTPUT;
SELECT @failed AS is_failed;
