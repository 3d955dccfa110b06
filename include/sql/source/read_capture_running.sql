-- NULL where there is no capture job. Run on servers with an Agent only.
SELECT MAX(CASE WHEN a.start_execution_date IS NOT NULL AND a.stop_execution_date IS NULL THEN 1 ELSE 0 END)
FROM msdb.dbo.cdc_jobs AS j
LEFT JOIN msdb.dbo.sysjobactivity AS a
    ON a.job_id = j.job_id AND a.session_id = (SELECT MAX(session_id) FROM msdb.dbo.sysjobactivity)
WHERE j.database_id = DB_ID() AND j.job_type = N'capture';
