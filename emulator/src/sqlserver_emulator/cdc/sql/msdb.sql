-- What SQL Server Agent shows of CDC's jobs in msdb. Statements end with a line that holds only "--;".

CREATE OR REPLACE VIEW :dbo.sysjobs AS
    SELECT j.job_id, 0 AS originating_server_id, j.job_name::emulator.sysname AS name, 1::smallint::emulator.tinyint AS enabled,
           ('CDC ' || j.job_type || ' job')::varchar(512) AS description, 1 AS start_step_id, 0 AS category_id,
           j.date_created::emulator.datetime AS date_created, j.date_created::emulator.datetime AS date_modified,
           1 AS version_number
    FROM emulator.cdc_jobs j;
--;

CREATE OR REPLACE VIEW :dbo.sysjobactivity AS
    SELECT a.session_id, a.job_id, a.run_requested_date::emulator.datetime AS run_requested_date,
           a.requested_by::emulator.sysname AS run_requested_source, NULL::timestamp(3)::emulator.datetime AS queued_date,
           a.start_execution_date::emulator.datetime AS start_execution_date, NULL::int AS last_executed_step_id,
           NULL::timestamp(3)::emulator.datetime AS last_executed_step_date,
           a.stop_execution_date::emulator.datetime AS stop_execution_date, NULL::int AS job_history_id,
           NULL::timestamp(3)::emulator.datetime AS next_scheduled_run_date
    FROM emulator.cdc_job_activity a;
