-- What change event streaming keeps about all databases, once per cluster. Run at every start, before the system views.

-- Shown in sys.databases and sys.tables. has_preview_features: ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES.
-- stream_lsn_shift: how far the LSNs of its events were moved back.
ALTER TABLE emulator.databases
    ADD COLUMN IF NOT EXISTS stream_lsn_shift bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS is_event_stream_enabled boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS has_preview_features boolean NOT NULL DEFAULT false;
ALTER TABLE emulator.objects ADD COLUMN IF NOT EXISTS is_streamed boolean NOT NULL DEFAULT false;

-- position: every transaction that committed below it was delivered.
CREATE TABLE IF NOT EXISTS emulator.event_stream_databases (
    database_id int PRIMARY KEY REFERENCES emulator.databases ON DELETE CASCADE,
    slot_name text NOT NULL UNIQUE,       -- also the name of the publication
    position pg_lsn NOT NULL,
    is_behind boolean NOT NULL DEFAULT false  -- a delivery has failed, and what it had to deliver holds the log
);
-- generation: of the form of its messages (docs/reference/event_stream.md, "Generations").
ALTER TABLE emulator.event_stream_databases ADD COLUMN IF NOT EXISTS generation int NOT NULL DEFAULT 3;

-- sys.dm_change_feed_log_scan_sessions and dm_change_feed_errors. A start of the server empties both, as they are in memory
-- there. Of each database the last 32 scans are kept; session 0 has the sums of all of them.
CREATE UNLOGGED TABLE IF NOT EXISTS emulator.event_stream_scans (
    database_id int NOT NULL REFERENCES emulator.event_stream_databases ON DELETE CASCADE,
    session_id int NOT NULL,
    start_time timestamp(3) NOT NULL,
    end_time timestamp(3) NOT NULL,
    duration int NOT NULL,
    batch_processing_phase varchar(200) NOT NULL,
    error_count int NOT NULL,
    batch_start_lsn varchar(23) NOT NULL,
    currently_processed_lsn varchar(23) NOT NULL,
    batch_end_lsn varchar(23) NOT NULL,
    tran_count bigint NOT NULL,
    currently_processed_commit_lsn varchar(23) NOT NULL,
    currently_processed_commit_time timestamp(3),
    log_record_count bigint NOT NULL,
    schema_change_count int NOT NULL,
    command_count bigint NOT NULL,
    latency int NOT NULL,
    empty_scan_count int NOT NULL,
    failed_sessions_count int NOT NULL,
    PRIMARY KEY (database_id, session_id)
);
CREATE UNLOGGED TABLE IF NOT EXISTS emulator.event_stream_errors (
    database_id int NOT NULL,
    session_id int NOT NULL,
    entry_time timestamp(3) NOT NULL DEFAULT emulator.now(),
    error_number int NOT NULL,
    error_severity int NOT NULL,
    error_state int NOT NULL,
    error_message varchar(1024) NOT NULL,
    batch_start_lsn varchar(23) NOT NULL,
    FOREIGN KEY (database_id, session_id) REFERENCES emulator.event_stream_scans ON DELETE CASCADE
);
-- Dropped, they would take the system views with them, which are made once.
TRUNCATE emulator.event_stream_scans, emulator.event_stream_errors;

-- A scan, or several that found nothing, or one that failed. committed: the last commit, in seconds since 1970. Returns the
-- session, or NULL where the stream has ended in the meantime.
CREATE OR REPLACE FUNCTION emulator.record_stream_scan(scanned int, began timestamp, first_lsn text, last_lsn text,
    committed float8, transactions bigint, records bigint, changes int, commands bigint, empty int, failed int)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    ended timestamp(3) := emulator.now();
    lasted int := CASE WHEN transactions > 0 THEN extract(epoch FROM ended - began) ELSE 0 END;
    commit_time timestamp(3) := CASE WHEN transactions > 0 THEN to_timestamp(committed)::timestamp END;
    late int := coalesce(greatest(0, extract(epoch FROM ended - commit_time)), 0);
    newest emulator.event_stream_scans;
BEGIN
    PERFORM FROM emulator.event_stream_databases WHERE database_id = scanned FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO newest FROM emulator.event_stream_scans WHERE database_id = scanned ORDER BY session_id DESC LIMIT 1;
    IF empty > 0 AND newest.empty_scan_count > 0 AND newest.session_id > 0 THEN
        UPDATE emulator.event_stream_scans s SET end_time = ended, empty_scan_count = s.empty_scan_count + empty,
            log_record_count = s.log_record_count + records
        WHERE s.database_id = scanned AND s.session_id = newest.session_id;
    ELSE
        newest.session_id := coalesce(newest.session_id, 0) + 1;
        INSERT INTO emulator.event_stream_scans VALUES (scanned, newest.session_id, began, ended, lasted,
            CASE failed WHEN 0 THEN 'Done' ELSE 'Last scan, publish and commit' END, failed, first_lsn, last_lsn, last_lsn,
            transactions, last_lsn, commit_time, records, changes, commands, late, empty, failed);
    END IF;
    INSERT INTO emulator.event_stream_scans AS s VALUES (scanned, 0, began, ended, lasted, 'Aggregate', failed, first_lsn,
        '00000000:00000000:0000', last_lsn, transactions, last_lsn, commit_time, records, changes, commands, late, empty, failed)
    ON CONFLICT (database_id, session_id) DO UPDATE SET end_time = ended, duration = s.duration + lasted,
        error_count = s.error_count + failed, batch_start_lsn = first_lsn, batch_end_lsn = last_lsn,
        tran_count = s.tran_count + transactions,
        currently_processed_commit_lsn = greatest(s.currently_processed_commit_lsn, last_lsn),
        currently_processed_commit_time = coalesce(commit_time, s.currently_processed_commit_time),
        log_record_count = s.log_record_count + records, schema_change_count = s.schema_change_count + changes,
        command_count = s.command_count + commands, latency = coalesce(nullif(late, 0), s.latency),
        empty_scan_count = s.empty_scan_count + empty, failed_sessions_count = s.failed_sessions_count + failed;
    DELETE FROM emulator.event_stream_scans s
    WHERE s.database_id = scanned AND s.session_id BETWEEN 1 AND newest.session_id - 32;
    RETURN newest.session_id;
END $$;

CREATE OR REPLACE FUNCTION emulator.record_stream_error(failed int, number int, severity int, state int, message text, start text)
RETURNS void LANGUAGE sql AS $$
    UPDATE emulator.event_stream_databases SET is_behind = true WHERE database_id = failed;
    INSERT INTO emulator.event_stream_errors
        (database_id, session_id, error_number, error_severity, error_state, error_message, batch_start_lsn)
    SELECT failed, made.session_id, number, severity, state, left(message, 1024), start
    FROM emulator.record_stream_scan(failed, emulator.now(), start, start, 0, 0, 0, 0, 0, 0, 1) AS made (session_id)
    WHERE made.session_id IS NOT NULL;
$$;

CREATE TABLE IF NOT EXISTS emulator.event_stream_groups (
    database_id int NOT NULL REFERENCES emulator.event_stream_databases ON DELETE CASCADE,
    name varchar(128) NOT NULL,
    location text NOT NULL,
    message_bytes int NOT NULL,
    scheme text NOT NULL,
    column_name varchar(128),
    is_binary boolean NOT NULL,
    credential varchar(128) NOT NULL,
    destination_location text NOT NULL,   -- as it was given; location is the folder of the hub
    destination_type text NOT NULL,
    group_id uuid NOT NULL DEFAULT gen_random_uuid(),
    PRIMARY KEY (database_id, name)
);

-- enabled_at: a place after which every change of the table is streamed.
CREATE TABLE IF NOT EXISTS emulator.event_stream_tables (
    object_id int PRIMARY KEY,
    database_id int NOT NULL,
    group_name varchar(128) NOT NULL,
    table_id uuid NOT NULL DEFAULT gen_random_uuid(),
    all_columns boolean NOT NULL,
    old_values boolean NOT NULL,
    old_lobs boolean NOT NULL,
    enabled_at pg_lsn NOT NULL,
    FOREIGN KEY (database_id, group_name) REFERENCES emulator.event_stream_groups ON DELETE CASCADE
);
