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
