-- NULL leaves a parameter as it is.
EXEC sys.sp_cdc_change_job @job_type = ?, @maxtrans = ?, @maxscans = ?, @continuous = ?, @pollinginterval = ?,
    @retention = ?, @threshold = ?;
