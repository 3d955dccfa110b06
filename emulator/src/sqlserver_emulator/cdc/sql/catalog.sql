-- What change data capture keeps about all databases, once per cluster, beside the engine's catalog. Run at every start.

CREATE TABLE IF NOT EXISTS emulator.cdc_databases (
    database_id int PRIMARY KEY REFERENCES emulator.databases ON DELETE CASCADE,
    slot_name text NOT NULL UNIQUE,       -- also the name of the publication
    cdc_schema text NOT NULL,             -- the PostgreSQL schema of D.cdc
    version bigint NOT NULL DEFAULT 1     -- grows with every change of instances; the row is the lock of those who change them
);

-- What an LSN shown is behind the place in PostgreSQL's log: a restore moved it back (control/restore.py).
ALTER TABLE emulator.cdc_databases ADD COLUMN IF NOT EXISTS lsn_shift bigint NOT NULL DEFAULT 0;

CREATE SEQUENCE IF NOT EXISTS emulator.cdc_slot_numbers;

-- Written by the capture job with the rows it captured: every transaction that committed below is in the change tables.
CREATE TABLE IF NOT EXISTS emulator.cdc_positions (
    database_id int PRIMARY KEY REFERENCES emulator.cdc_databases ON DELETE CASCADE,
    position pg_lsn NOT NULL
);

-- enabled_at: a place after which every change of the table belongs to the instance. change_tables.start_lsn moves, this not.
CREATE TABLE IF NOT EXISTS emulator.cdc_instances (
    object_id int PRIMARY KEY,
    database_id int NOT NULL REFERENCES emulator.cdc_databases ON DELETE CASCADE,
    enabled_at pg_lsn NOT NULL
);

-- Captured columns that were dropped at the source, as far as the capture job has read: NULL from then on.
CREATE TABLE IF NOT EXISTS emulator.cdc_dropped_columns (
    object_id int NOT NULL REFERENCES emulator.cdc_instances ON DELETE CASCADE,
    column_id int NOT NULL,
    PRIMARY KEY (object_id, column_id)
);

CREATE TABLE IF NOT EXISTS emulator.cdc_jobs (
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    job_type varchar(20) NOT NULL,
    job_id uuid NOT NULL DEFAULT gen_random_uuid(),
    job_name varchar(128) NOT NULL,
    maxtrans int NOT NULL,
    maxscans int NOT NULL,
    continuous smallint NOT NULL,
    pollinginterval bigint NOT NULL,
    retention bigint NOT NULL,
    threshold bigint NOT NULL,
    date_created timestamp(3) NOT NULL DEFAULT emulator.now(),
    PRIMARY KEY (database_id, job_type)
);

-- What the agent was asked to do with a job and what it did, since it started.
CREATE TABLE IF NOT EXISTS emulator.cdc_job_activity (
    job_id uuid PRIMARY KEY,
    session_id int NOT NULL DEFAULT 1,
    is_requested boolean NOT NULL,
    requested_by varchar(128) NOT NULL,
    run_requested_date timestamp(3),
    start_execution_date timestamp(3),
    stop_execution_date timestamp(3)
);

-- Who asked for the run, as sysjobactivity shows it: 1 a schedule, 3 the start of the agent, 4 a login.
ALTER TABLE emulator.cdc_job_activity ADD COLUMN IF NOT EXISTS requested_source smallint NOT NULL DEFAULT 4;

CREATE UNIQUE INDEX IF NOT EXISTS cdc_jobs_job_id ON emulator.cdc_jobs (job_id);
ALTER TABLE emulator.cdc_jobs ADD COLUMN IF NOT EXISTS schedule_id int GENERATED ALWAYS AS IDENTITY;

CREATE TABLE IF NOT EXISTS emulator.agent_sessions (
    session_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent_start_date timestamp(3) NOT NULL
);

-- The runs that go on. attempt_at: when the last step began, or began again; retry_at: a failure before then belongs to
-- the attempt that has been recorded.
CREATE TABLE IF NOT EXISTS emulator.job_runs (
    job_id uuid PRIMARY KEY REFERENCES emulator.cdc_jobs (job_id) ON DELETE CASCADE,
    invoked_by varchar(300) NOT NULL,
    stopped_by varchar(300),
    started_at timestamp(3) NOT NULL,
    attempt_at timestamp(3) NOT NULL,
    retries int NOT NULL DEFAULT 0,
    retry_at timestamp(3)
);

CREATE TABLE IF NOT EXISTS emulator.job_history (
    instance_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid NOT NULL REFERENCES emulator.cdc_jobs (job_id) ON DELETE CASCADE,
    step_id int NOT NULL,
    step_name varchar(128) NOT NULL,
    sql_message_id int NOT NULL,
    sql_severity int NOT NULL,
    message varchar(4000) NOT NULL,
    run_status int NOT NULL,
    run_date int NOT NULL,
    run_time int NOT NULL,
    run_duration int NOT NULL,
    retries_attempted int NOT NULL
);

CREATE OR REPLACE VIEW emulator.job_steps AS
    SELECT j.job_id, s.*, s.step_id = max(s.step_id) OVER (PARTITION BY j.job_id) AS is_last
    FROM emulator.cdc_jobs j JOIN (VALUES
        ('capture', 1, 'Starting Change Data Capture Collection Agent', 'RAISERROR(22801, 10, -1)', 3, 3),
        ('capture', 2, 'Change Data Capture Collection Agent', 'sys.sp_MScdc_capture_job', 1, 2),
        ('cleanup', 1, 'Change Data Capture Cleanup Agent', 'sys.sp_MScdc_cleanup_job', 1, 2)
    ) AS s (job_type, step_id, step_name, command, on_success_action, on_fail_action) USING (job_type);

CREATE OR REPLACE FUNCTION emulator.agent_date(moment timestamp) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(to_char(moment, 'YYYYMMDD')::int, 0)
$$;

CREATE OR REPLACE FUNCTION emulator.agent_time(moment timestamp) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(to_char(moment, 'HH24MISS')::int, 0)
$$;

-- HHMMSS as a number; the hours may be more than 24.
CREATE OR REPLACE FUNCTION emulator.agent_duration(lasted interval) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT (s / 3600 * 10000 + s % 3600 / 60 * 100 + s % 60)::int
    FROM (SELECT greatest(floor(extract(epoch FROM lasted)), 0)::bigint AS s) AS seconds
$$;

-- When the agent runs a job by its schedule next: cleanup at two in the morning, capture when the agent starts.
CREATE OR REPLACE FUNCTION emulator.next_scheduled_run(job_type varchar) RETURNS timestamp LANGUAGE sql STABLE AS $$
    SELECT CASE job_type WHEN 'cleanup'
        THEN date_trunc('day', emulator.now() - interval '2 h') + interval '26 h' END
$$;

CREATE UNLOGGED TABLE IF NOT EXISTS emulator.cdc_log_scan_sessions (
    database_id int NOT NULL REFERENCES emulator.cdc_databases ON DELETE CASCADE,
    session_id int NOT NULL,
    start_time timestamp(3) NOT NULL,
    end_time timestamp(3),
    duration bigint NOT NULL DEFAULT 0,
    scan_phase varchar(200) NOT NULL,
    error_count int NOT NULL DEFAULT 0,
    start_lsn varchar(23) NOT NULL DEFAULT '00000000:00000000:0000',
    current_lsn varchar(23) NOT NULL DEFAULT '00000000:00000000:0000',
    end_lsn varchar(23) NOT NULL DEFAULT '00000000:00000000:0000',
    tran_count bigint NOT NULL DEFAULT 0,
    last_commit_lsn varchar(23) NOT NULL DEFAULT '00000000:00000000:0000',
    last_commit_time timestamp(3),
    log_record_count bigint NOT NULL DEFAULT 0,
    schema_change_count int NOT NULL DEFAULT 0,
    command_count bigint NOT NULL DEFAULT 0,
    first_begin_cdc_lsn varchar(23) NOT NULL DEFAULT '00000000:00000000:0000',
    last_commit_cdc_lsn varchar(23) NOT NULL DEFAULT '00000000:00000000:0000',
    last_commit_cdc_time timestamp(3),
    latency int NOT NULL DEFAULT 0,
    empty_scan_count int NOT NULL DEFAULT 0,
    failed_sessions_count int NOT NULL DEFAULT 0,
    PRIMARY KEY (database_id, session_id)
);

-- The sums of the sessions that the table above has forgotten.
CREATE UNLOGGED TABLE IF NOT EXISTS emulator.cdc_log_scan_totals (
    database_id int PRIMARY KEY,
    start_time timestamp(3) NOT NULL,
    duration bigint NOT NULL,
    error_count bigint NOT NULL,
    tran_count bigint NOT NULL,
    log_record_count bigint NOT NULL,
    schema_change_count bigint NOT NULL,
    command_count bigint NOT NULL,
    empty_scan_count bigint NOT NULL,
    failed_sessions_count bigint NOT NULL
);

CREATE UNLOGGED TABLE IF NOT EXISTS emulator.cdc_errors (
    database_id int NOT NULL REFERENCES emulator.cdc_databases ON DELETE CASCADE,
    session_id int NOT NULL,
    phase_number int NOT NULL,
    entry_time timestamp(3) NOT NULL DEFAULT emulator.now(),
    error_number int NOT NULL,
    error_severity int NOT NULL,
    error_state int NOT NULL,
    error_message varchar(1024) NOT NULL,
    start_lsn varchar(23) NOT NULL,
    begin_lsn varchar(23) NOT NULL,
    sequence_value varchar(23) NOT NULL
);

-- Session 0 of the management view: all sessions since the server started, those that are forgotten too.
CREATE OR REPLACE FUNCTION emulator.cdc_scan_aggregate(database int) RETURNS SETOF emulator.cdc_log_scan_sessions
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT (jsonb_populate_record(newest, jsonb_build_object(
        'session_id', 0, 'scan_phase', 'Aggregate', 'latency', kept.latency,
        'start_time', least(kept.start_time, gone.start_time),
        'duration', kept.duration + coalesce(gone.duration, 0),
        'error_count', kept.errors + coalesce(gone.error_count, 0),
        'tran_count', kept.transactions + coalesce(gone.tran_count, 0),
        'log_record_count', kept.records + coalesce(gone.log_record_count, 0),
        'schema_change_count', kept.changes + coalesce(gone.schema_change_count, 0),
        'command_count', kept.commands + coalesce(gone.command_count, 0),
        'empty_scan_count', kept.empty + coalesce(gone.empty_scan_count, 0),
        'failed_sessions_count', kept.failed + coalesce(gone.failed_sessions_count, 0)))).*
    FROM (SELECT max(s.session_id) AS newest_id, min(s.start_time) AS start_time, sum(s.duration) AS duration,
                 sum(s.error_count) AS errors, sum(s.tran_count) AS transactions, sum(s.log_record_count) AS records,
                 sum(s.schema_change_count) AS changes, sum(s.command_count) AS commands,
                 sum(s.empty_scan_count) AS empty, sum(s.failed_sessions_count) AS failed,
                 coalesce(round(avg(s.latency) FILTER (WHERE s.tran_count > 0)), 0) AS latency
          FROM emulator.cdc_log_scan_sessions s WHERE s.database_id = $1) AS kept
    JOIN emulator.cdc_log_scan_sessions newest ON newest.database_id = $1 AND newest.session_id = kept.newest_id
    LEFT JOIN emulator.cdc_log_scan_totals gone ON gone.database_id = $1
$$;

-- What runs with a caller's rights: functions, and the views that enumeration functions read, so that a caller needs no
-- right on a change table.
CREATE SCHEMA IF NOT EXISTS emulator_cdc;
GRANT USAGE ON SCHEMA emulator_cdc TO PUBLIC;

-- Add 1 or -1 to an LSN as a whole number of 80 bits, wrapping at the ends.
CREATE OR REPLACE FUNCTION emulator_cdc.lsn_add(lsn bytea, step int) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    turned int := CASE step WHEN 1 THEN 255 ELSE 0 END;
BEGIN
    FOR i IN REVERSE length(lsn) - 1 .. 0 LOOP
        IF get_byte(lsn, i) <> turned THEN
            RETURN set_byte(lsn, i, get_byte(lsn, i) + step);
        END IF;
        lsn := set_byte(lsn, i, 255 - turned);
    END LOOP;
    RETURN lsn;
END $$;

-- How lsn.py shows a position of PostgreSQL's log, in the lower case of sys.dm_db_log_stats.
CREATE OR REPLACE FUNCTION emulator_cdc.lsn_text("position" numeric) RETURNS varchar LANGUAGE sql IMMUTABLE AS $$
    SELECT lpad(to_hex(div("position", 16777216)::bigint + 32), 8, '0') || ':'
        || lpad(to_hex(div(mod("position", 16777216), 8)::bigint), 8, '0') || ':0001'
$$;

CREATE OR REPLACE FUNCTION emulator_cdc.mask_or(a bytea, b bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF a IS NULL OR b IS NULL THEN
        RETURN coalesce(a, b);
    END IF;
    FOR i IN 0 .. length(a) - 1 LOOP
        a := set_byte(a, i, get_byte(a, i) | get_byte(b, i));
    END LOOP;
    RETURN a;
END $$;

CREATE OR REPLACE AGGREGATE emulator_cdc.mask_union(bytea) (SFUNC = emulator_cdc.mask_or, STYPE = bytea);

CREATE OR REPLACE FUNCTION emulator_cdc.raise(number int, severity int, state int, message text, procedure text DEFAULT '')
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'MSSQL', MESSAGE = message, DETAIL = json_build_object(
        'number', number, 'severity', severity, 'state', state, 'procedure', procedure)::text;
END $$;

-- Who asks: the login of the session, NULL for the emulator's own connections.
CREATE OR REPLACE FUNCTION emulator_cdc.login() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT nullif(current_setting('emulator.login', true), '')
$$;

-- Whether the session's login is sysadmin or (as a database user, directly or through roles) in the named role.
CREATE OR REPLACE FUNCTION emulator_cdc.caller_in(database int, role_name text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    WITH RECURSIVE held AS (
        SELECT p.principal_id FROM emulator.principals p
        WHERE p.database_id = database AND p.type = 'S' AND lower(p.login) = lower(emulator_cdc.login())
        UNION
        SELECT m.role_principal_id FROM emulator.role_members m JOIN held h ON m.member_principal_id = h.principal_id
        WHERE m.database_id = database
    )
    SELECT emulator_cdc.login() IS NULL
        OR EXISTS (SELECT 1 FROM emulator.logins l WHERE lower(l.name) = lower(emulator_cdc.login()) AND l.is_sysadmin)
        OR EXISTS (SELECT 1 FROM held h JOIN emulator.principals p USING (principal_id)
                   WHERE p.database_id = database AND lower(p.name) = lower(role_name))
$$;

-- The PostgreSQL role that the session's login is in a database.
CREATE OR REPLACE FUNCTION emulator_cdc.caller_role(database int) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT p.postgres_role FROM emulator.principals p
    WHERE p.database_id = database AND p.type = 'S' AND lower(p.login) = lower(emulator_cdc.login())
$$;

-- Real servers compute the mask of net changes with a CLR function: NULL unless the option "clr enabled" is on.
CREATE OR REPLACE FUNCTION emulator_cdc.evaluates_masks() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT coalesce((SELECT value = '1' FROM emulator.settings WHERE name = 'clr enabled'), false)
$$;

-- GETDATE() as datetime rounds it: ticks of 1/300 s, shown as .000, .003, .007.
CREATE OR REPLACE FUNCTION emulator_cdc.now() RETURNS timestamp(3) LANGUAGE sql STABLE AS $$
    SELECT date_trunc('second', n)
           + make_interval(secs => round(round(extract(microsecond FROM n) % 1000000 * 3 / 10000) * 10 / 3) / 1000.0)
    FROM (SELECT emulator.now() AS n) AS now
$$;

-- msdb.dbo.agent_datetime: the numbers YYYYMMDD and HHMMSS of the agent as one datetime.
CREATE OR REPLACE FUNCTION emulator_cdc.agent_datetime(date int, "time" int) RETURNS timestamp(3)
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT make_timestamp(date / 10000, date / 100 % 100, date % 100, "time" / 10000, "time" / 100 % 100, "time" % 100)
$$;
