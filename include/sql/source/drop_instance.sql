EXEC sys.sp_cdc_disable_table @source_schema = ?, @source_name = ?, @capture_instance = ?;
