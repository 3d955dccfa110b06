-- What change event streaming keeps about all databases, once per cluster. Run at every start, before the system views.

-- Shown in sys.databases and sys.tables. has_preview_features: ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES.
ALTER TABLE emulator.databases
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

CREATE TABLE IF NOT EXISTS emulator.event_stream_errors (
    session_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    entry_time timestamp(3) NOT NULL DEFAULT emulator.now(),
    error_number int NOT NULL,
    error_severity int NOT NULL,
    error_state int NOT NULL,
    error_message varchar(1024) NOT NULL,
    batch_start_lsn varchar(23) NOT NULL
);

-- Of each database the last 32 are kept, as sys.dm_change_feed_errors has them.
CREATE OR REPLACE FUNCTION emulator.record_stream_error(failed int, number int, severity int, state int, message text, start text)
RETURNS void LANGUAGE sql AS $$
    UPDATE emulator.event_stream_databases SET is_behind = true WHERE database_id = failed;
    INSERT INTO emulator.event_stream_errors
        (database_id, error_number, error_severity, error_state, error_message, batch_start_lsn)
    VALUES (failed, number, severity, state, left(message, 1024), start);
    DELETE FROM emulator.event_stream_errors WHERE database_id = failed AND session_id <= (
        SELECT session_id FROM emulator.event_stream_errors WHERE database_id = failed
        ORDER BY session_id DESC OFFSET 32 LIMIT 1);
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
