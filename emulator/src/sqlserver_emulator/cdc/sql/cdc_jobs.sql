-- msdb.dbo.cdc_jobs, which exists only while CDC is enabled in some database.
CREATE VIEW :dbo.cdc_jobs AS
    SELECT j.database_id, j.job_type, j.job_id, j.maxtrans, j.maxscans, j.continuous::emulator.bit AS continuous,
           j.pollinginterval, j.retention, j.threshold
    FROM emulator.cdc_jobs j
