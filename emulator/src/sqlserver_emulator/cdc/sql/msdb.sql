-- What SQL Server Agent shows of CDC's jobs in msdb. Statements end with a line that holds only "--;".

CREATE VIEW :dbo.sysjobs AS
    SELECT j.job_id, 0 AS originating_server_id, j.job_name::emulator.sysname AS name, 1::smallint::emulator.tinyint AS enabled,
           (CASE j.job_type WHEN 'capture' THEN 'CDC Log Scan Job' ELSE 'CDC Cleanup Job' END)::varchar(512) AS description,
           1 AS start_step_id, CASE j.job_type WHEN 'capture' THEN 13 ELSE 16 END AS category_id, '\x01'::bytea AS owner_sid,
           2 AS notify_level_eventlog, 0 AS notify_level_email, 0 AS notify_level_netsend, 0 AS notify_level_page,
           0 AS notify_email_operator_id, 0 AS notify_netsend_operator_id, 0 AS notify_page_operator_id, 0 AS delete_level,
           j.date_created::emulator.datetime AS date_created, j.date_created::emulator.datetime AS date_modified,
           1 AS version_number
    FROM emulator.cdc_jobs j;
--;

-- last_executed_step_id and _date are those of the step that ended last: the first one of a capture job that runs.
CREATE VIEW :dbo.sysjobactivity AS
    SELECT a.session_id, a.job_id, a.run_requested_date::emulator.datetime AS run_requested_date,
           a.requested_source::text::emulator.sysname AS run_requested_source,
           NULL::timestamp(3)::emulator.datetime AS queued_date,
           a.start_execution_date::emulator.datetime AS start_execution_date, h.step_id AS last_executed_step_id,
           h.began::emulator.datetime AS last_executed_step_date,
           a.stop_execution_date::emulator.datetime AS stop_execution_date,
           CASE WHEN a.stop_execution_date IS NOT NULL THEN o.instance_id END AS job_history_id,
           emulator.next_scheduled_run(j.job_type)::timestamp(3)::emulator.datetime AS next_scheduled_run_date
    FROM emulator.cdc_job_activity a JOIN emulator.cdc_jobs j USING (job_id)
    LEFT JOIN LATERAL (SELECT max(instance_id) AS instance_id FROM emulator.job_history h
                       WHERE h.job_id = a.job_id AND h.step_id = 0) AS o ON true
    LEFT JOIN LATERAL (
        SELECT h.step_id, to_timestamp(h.run_date::text || lpad(h.run_time::text, 6, '0'), 'YYYYMMDDHH24MISS')::timestamp(3) AS began
        FROM emulator.job_history h
        -- The rows of this run: those behind the outcome of the run before, or with it when it has ended.
        WHERE h.job_id = a.job_id AND h.step_id > 0 AND a.start_execution_date IS NOT NULL
          AND (a.stop_execution_date IS NOT NULL OR h.instance_id > coalesce(o.instance_id, 0))
        ORDER BY h.instance_id DESC LIMIT 1) AS h ON true;
--;

CREATE VIEW :dbo.sysjobhistory AS
    SELECT h.instance_id, h.job_id, h.step_id, h.step_name::emulator.sysname AS step_name, h.sql_message_id, h.sql_severity,
           h.message::varchar(4000) AS message, h.run_status, h.run_date, h.run_time, h.run_duration,
           0 AS operator_id_emailed, 0 AS operator_id_netsent, 0 AS operator_id_paged, h.retries_attempted,
           emulator.server_name()::emulator.sysname AS server
    FROM emulator.job_history h;
--;

CREATE VIEW :dbo.sysjobsteps AS
    SELECT s.job_id, s.step_id, s.step_name::emulator.sysname AS step_name, 'TSQL'::varchar(40) AS subsystem,
           s.command::text AS command, 4 AS flags, NULL::text AS additional_parameters, 0 AS cmdexec_success_code,
           s.on_success_action::smallint::emulator.tinyint AS on_success_action, 0 AS on_success_step_id,
           s.on_fail_action::smallint::emulator.tinyint AS on_fail_action, 0 AS on_fail_step_id,
           emulator.server_name()::emulator.sysname AS server, d.name::emulator.sysname AS database_name,
           NULL::varchar(128)::emulator.sysname AS database_user_name, 10 AS retry_attempts, 1 AS retry_interval,
           0 AS os_run_priority, NULL::varchar(200) AS output_file_name, coalesce(h.run_status, 5) AS last_run_outcome,
           coalesce(h.run_duration, 0) AS last_run_duration, coalesce(h.retries_attempted, 0) AS last_run_retries,
           coalesce(h.run_date, 0) AS last_run_date, coalesce(h.run_time, 0) AS last_run_time, NULL::int AS proxy_id,
           md5(s.job_id::text || s.step_id)::uuid AS step_uid
    FROM emulator.job_steps s JOIN emulator.cdc_jobs j USING (job_id) JOIN emulator.databases d USING (database_id)
    LEFT JOIN LATERAL (SELECT * FROM emulator.job_history h WHERE h.job_id = s.job_id AND h.step_id = s.step_id
                       ORDER BY h.instance_id DESC LIMIT 1) AS h ON true;
--;

CREATE VIEW :dbo.sysjobservers AS
    SELECT j.job_id, 0 AS server_id, coalesce(h.run_status, 5)::smallint::emulator.tinyint AS last_run_outcome,
           h.message::varchar(4000) AS last_outcome_message, coalesce(h.run_date, 0) AS last_run_date,
           coalesce(h.run_time, 0) AS last_run_time, coalesce(h.run_duration, 0) AS last_run_duration
    FROM emulator.cdc_jobs j
    LEFT JOIN LATERAL (SELECT * FROM emulator.job_history h WHERE h.job_id = j.job_id AND h.step_id = 0
                       ORDER BY h.instance_id DESC LIMIT 1) AS h ON true;
--;

CREATE VIEW :dbo.syssessions AS
    SELECT s.session_id, s.agent_start_date::emulator.datetime AS agent_start_date FROM emulator.agent_sessions s;
--;

CREATE VIEW :dbo.syscategories AS
    SELECT c.category_id, 1 AS category_class, 1::smallint::emulator.tinyint AS category_type, c.name::emulator.sysname AS name
    FROM (VALUES (0, '[Uncategorized (Local)]'), (13, 'REPL-LogReader'), (16, 'REPL-Checkup')) AS c (category_id, name);
--;

CREATE VIEW :dbo.sysschedules AS
    SELECT j.schedule_id, md5(j.job_id::text)::uuid AS schedule_uid, 0 AS originating_server_id,
           format('CDC %s agent schedule.', j.job_type)::emulator.sysname AS name, '\x01'::bytea AS owner_sid, 1 AS enabled,
           CASE j.job_type WHEN 'capture' THEN 64 ELSE 4 END AS freq_type,
           f.daily AS freq_interval, f.daily AS freq_subday_type, f.daily AS freq_subday_interval,
           f.daily AS freq_relative_interval, 0 AS freq_recurrence_factor,
           emulator.agent_date(j.date_created) AS active_start_date, 99991231 AS active_end_date,
           f.daily * 20000 AS active_start_time, 235959 AS active_end_time,
           j.date_created::emulator.datetime AS date_created, j.date_created::emulator.datetime AS date_modified,
           1 AS version_number
    FROM emulator.cdc_jobs j, LATERAL (SELECT (j.job_type = 'cleanup')::int AS daily) AS f;
--;

CREATE VIEW :dbo.sysjobschedules AS
    SELECT j.schedule_id, j.job_id, emulator.agent_date(emulator.next_scheduled_run(j.job_type)) AS next_run_date,
           emulator.agent_time(emulator.next_scheduled_run(j.job_type)) AS next_run_time
    FROM emulator.cdc_jobs j;
