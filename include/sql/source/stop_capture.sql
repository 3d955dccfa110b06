EXEC sys.sp_cdc_stop_job @job_type = N'capture';
