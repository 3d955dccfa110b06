-- Every capture instance that the login may see, with the name that its table has now. Result sets: 1 the login at the
-- database, 2 the instances (only where CDC is on).
SET NOCOUNT ON;
-- An error ends the batch: the statements after it would hide its number.
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

SELECT DB_NAME() AS database_name, USER_NAME() AS user_name, IS_MEMBER(N'db_owner') AS is_db_owner;

IF EXISTS (SELECT 1 FROM sys.databases WHERE name = DB_NAME() AND is_cdc_enabled = 1)
    EXEC sys.sp_cdc_help_change_data_capture;
