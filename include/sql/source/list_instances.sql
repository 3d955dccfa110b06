-- Every capture instance that the login may see, with the name that its table has now.
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;

IF EXISTS (SELECT 1 FROM sys.databases WHERE name = DB_NAME() AND is_cdc_enabled = 1)
    EXEC sys.sp_cdc_help_change_data_capture;
