-- What the controls keep, once per cluster. Run at every start, before the engine's catalog, whose defaults use the clock.

CREATE SCHEMA IF NOT EXISTS emulator;

-- The emulator's clock is PostgreSQL's plus the shift of the newest row; a commit's time is shown with the shift of its day.
CREATE TABLE IF NOT EXISTS emulator.clock_changes (
    changed_at timestamptz PRIMARY KEY DEFAULT clock_timestamp(),
    shift interval NOT NULL
);

CREATE OR REPLACE FUNCTION emulator.stored_clock_shift() RETURNS interval LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT coalesce((SELECT shift FROM emulator.clock_changes ORDER BY changed_at DESC LIMIT 1), '0')
$$;

-- Client sessions are told the shift in a setting: GETDATE() as a column's default must not cost a look into a table.
CREATE OR REPLACE FUNCTION emulator.clock_shift() RETURNS interval LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('emulator.clock_shift', true), '')::interval, emulator.stored_clock_shift())
$$;

-- SYSDATETIME(): the start of the client's statement.
CREATE OR REPLACE FUNCTION emulator.now() RETURNS timestamp LANGUAGE sql STABLE AS $$
    SELECT statement_timestamp()::timestamp + emulator.clock_shift()
$$;

-- SYSUTCDATETIME()
CREATE OR REPLACE FUNCTION emulator.utc_now() RETURNS timestamp LANGUAGE sql STABLE AS $$
    SELECT statement_timestamp() AT TIME ZONE 'UTC' + emulator.clock_shift()
$$;

GRANT USAGE ON SCHEMA emulator TO PUBLIC;

-- The columns that are NULL in captured deletes on demand: what capture jobs see of the faults. A restart ends faults.
CREATE TABLE IF NOT EXISTS emulator.nulls_in_deletes (
    object_id int NOT NULL,
    column_id int NOT NULL,
    PRIMARY KEY (object_id, column_id)
);
DELETE FROM emulator.nulls_in_deletes;

CREATE OR REPLACE FUNCTION emulator.set_nulls_in_deletes(pairs jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE emulator.nulls_in_deletes IN EXCLUSIVE MODE;
    DELETE FROM emulator.nulls_in_deletes;
    INSERT INTO emulator.nulls_in_deletes SELECT DISTINCT (pair->0)::int, (pair->1)::int FROM jsonb_array_elements(pairs) pair;
END $$;

-- sys.databases.log_reuse_wait: 6 (REPLICATION) while changes of tracked tables wait for a capture job that does not run or
-- holds them back, and while the log is full on demand; else 0. Those who hold or fill say so with an advisory lock.
CREATE OR REPLACE FUNCTION emulator.log_reuse_wait(database_id int) RETURNS smallint
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    slot record;
BEGIN
    IF EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
               AND classid = 1128547148 AND objid = log_reuse_wait.database_id) THEN
        RETURN 6;
    END IF;
    IF EXISTS (SELECT FROM emulator.event_stream_databases e WHERE e.database_id = log_reuse_wait.database_id AND e.is_behind) THEN
        RETURN 6;
    END IF;
    SELECT s.slot_name, s.confirmed_flush_lsn, p.position INTO slot
    FROM emulator.cdc_databases c JOIN emulator.cdc_positions p ON p.database_id = c.database_id
    JOIN pg_replication_slots s ON s.slot_name = c.slot_name
    WHERE c.database_id = log_reuse_wait.database_id AND NOT s.active;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    IF slot.position > slot.confirmed_flush_lsn THEN
        PERFORM pg_replication_slot_advance(slot.slot_name, slot.position);
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM pg_logical_slot_peek_binary_changes(slot.slot_name, NULL, 1, 'proto_version', '1',
        'publication_names', slot.slot_name::text, 'origin', 'none')) THEN 6 ELSE 0 END;
EXCEPTION WHEN object_in_use THEN
    RETURN 0;  -- a scan has just begun
END $$;

-- Wait until the lock could be had, and give it back: the savepoint that it was taken under is rolled back. What is read
-- without shared locks does not wait: dirty reads, and row versions.
CREATE OR REPLACE FUNCTION emulator.wait_for_lock(object_id int, lock_mode text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
BEGIN
    IF emulator.is_read_only() OR lock_mode = 'SHARE'
       AND current_setting('emulator.isolation', true) IN ('READ UNCOMMITTED', 'SNAPSHOT') THEN
        RETURN;
    END IF;
    EXECUTE format('LOCK TABLE %s IN %s MODE', object_id::oid::regclass, lock_mode);
    RAISE EXCEPTION USING ERRCODE = 'EMLCK';
EXCEPTION
    WHEN SQLSTATE 'EMLCK' OR undefined_table OR syntax_error THEN
        RETURN;  -- had, or the table is gone: the statement itself finds out
END $$;

-- sys.dm_db_log_space_usage: of a log of 1 GB at least, all while it is full on demand, else what capture still needs.
CREATE OR REPLACE FUNCTION emulator.log_space(database_id int, OUT total_bytes bigint, OUT used_bytes bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)), 0)::bigint INTO used_bytes
    FROM emulator.cdc_databases c JOIN pg_replication_slots s ON s.slot_name = c.slot_name
    WHERE c.database_id = log_space.database_id;
    total_bytes := greatest(1073741824, used_bytes);
    IF EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
               AND classid = 1179995212 AND objid = log_space.database_id) THEN
        used_bytes := total_bytes;
    END IF;
END $$;
