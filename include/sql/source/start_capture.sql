EXEC sys.sp_cdc_start_job @job_type = N'capture';
