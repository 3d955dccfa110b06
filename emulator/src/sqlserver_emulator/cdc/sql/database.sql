-- What schema sys of one database offers of change data capture, whether it is enabled there or not. Statements end with
-- a line that holds only "--;". Filled in: :sys and :cdc (quoted schemas), :database_id, :'database'.

CREATE OR REPLACE FUNCTION :sys.fn_cdc_get_max_lsn() RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    RETURN (SELECT m.start_lsn FROM :cdc.lsn_time_mapping m ORDER BY m.start_lsn DESC LIMIT 1);
EXCEPTION WHEN undefined_table OR invalid_schema_name THEN
    PERFORM emulator_cdc.raise(208, 16, 1, 'Invalid object name ''cdc.lsn_time_mapping''.');
END $$;
--;

-- Whether the caller may read what instance ct captured: SELECT on every captured column, and the gating role if any.
CREATE OR REPLACE FUNCTION :sys.cdc_may_read(ct int) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    instance record;
BEGIN
    IF emulator_cdc.caller_in(:database_id, 'db_owner') THEN
        RETURN true;
    END IF;
    SELECT c.source_object_id, c.role_name INTO instance FROM :cdc.change_tables c WHERE c.object_id = ct;
    IF NOT FOUND OR emulator_cdc.caller_role(:database_id) IS NULL
       OR (instance.role_name IS NOT NULL AND NOT emulator_cdc.caller_in(:database_id, instance.role_name)) THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (
        SELECT 1 FROM :cdc.captured_columns k
        JOIN emulator.columns s ON s.object_id = instance.source_object_id AND s.column_id = k.column_id
        WHERE k.object_id = ct AND NOT has_column_privilege(
            emulator_cdc.caller_role(:database_id), instance.source_object_id::oid, s.attnum, 'SELECT'));
EXCEPTION WHEN undefined_table OR invalid_schema_name THEN
    RETURN false;
END $$;
--;

-- The low end of an instance: NULL until the capture job has met the transaction that enabled it.
CREATE OR REPLACE FUNCTION :sys.cdc_low_end(ct int) RETURNS bytea LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    RETURN (SELECT c.start_lsn FROM :cdc.change_tables c JOIN :cdc.lsn_time_mapping m ON m.start_lsn = c.start_lsn
            WHERE c.object_id = ct);
END $$;
--;

CREATE OR REPLACE FUNCTION :sys.fn_cdc_get_min_lsn(capture_instance varchar) RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    ct int;
BEGIN
    SELECT c.object_id INTO ct FROM :cdc.change_tables c WHERE lower(c.capture_instance) = lower($1)
    ORDER BY c.capture_instance = $1 DESC LIMIT 1;
    IF ct IS NULL OR NOT :sys.cdc_may_read(ct) THEN
        RETURN '\x00000000000000000000'::bytea;
    END IF;
    RETURN :sys.cdc_low_end(ct);
EXCEPTION WHEN undefined_table OR invalid_schema_name THEN
    RETURN '\x00000000000000000000'::bytea;
END $$;
--;

-- Whether the caller was given SELECT on an enumeration function: the right is held by a view made for it.
CREATE OR REPLACE FUNCTION :sys.cdc_may_call(ct int, kind text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT coalesce(has_table_privilege(emulator_cdc.caller_role(:database_id),
                                        to_regclass(format('emulator_cdc.%s_function_%s', kind, ct)), 'SELECT'), false)
$$;
--;

-- What an enumeration function answers to a caller and a window: true, or false (one row of NULLs) to who may call it but
-- not read what it lists. Raises 229 for who may do neither, 313 for a window it does not accept.
CREATE OR REPLACE FUNCTION :sys.cdc_check_window(ct int, kind text, from_lsn bytea, to_lsn bytea, option varchar)
RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    low bytea := :sys.cdc_low_end(ct);
    high bytea := :sys.fn_cdc_get_max_lsn();
    options text[] := CASE kind WHEN 'all' THEN ARRAY['all', 'all update old']
                                ELSE ARRAY['all', 'all with mask', 'all with merge'] END;
BEGIN
    IF NOT :sys.cdc_may_read(ct) THEN
        IF :sys.cdc_may_call(ct, kind) THEN
            RETURN false;
        END IF;
        PERFORM emulator_cdc.raise(229, 14, 5, format('The SELECT permission was denied on the object '
            '''fn_cdc_get_%s_changes_...'', database ''%s'', schema ''cdc''.', kind, :'database'));
    END IF;
    IF (from_lsn >= low AND from_lsn <= to_lsn AND to_lsn <= high
        AND lower(btrim(option)) = ANY (options)) IS NOT TRUE THEN
        PERFORM emulator_cdc.raise(313, 16, 3, format('An insufficient number of arguments were supplied for the procedure '
            'or function cdc.fn_cdc_get_%s_changes_ ... .', kind));
    END IF;
    RETURN true;
END $$;
--;

CREATE OR REPLACE FUNCTION :sys.fn_cdc_increment_lsn(lsn bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT emulator_cdc.lsn_add(lsn, 1) $$;
--;

CREATE OR REPLACE FUNCTION :sys.fn_cdc_decrement_lsn(lsn bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT emulator_cdc.lsn_add(lsn, -1) $$;
--;

CREATE OR REPLACE FUNCTION :sys.fn_cdc_map_lsn_to_time(lsn bytea) RETURNS timestamp(3)
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER AS $$
BEGIN
    RETURN (SELECT m.tran_end_time FROM :cdc.lsn_time_mapping m WHERE m.start_lsn = lsn);
EXCEPTION WHEN undefined_table OR invalid_schema_name THEN
    PERFORM emulator_cdc.raise(208, 16, 1, 'Invalid object name ''cdc.lsn_time_mapping''.');
END $$;
--;

CREATE OR REPLACE FUNCTION :sys.fn_cdc_map_time_to_lsn(operator varchar, tracking_time timestamp) RETURNS bytea
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER AS $$
BEGIN
    RETURN CASE lower(btrim(operator))
        WHEN 'largest less than' THEN
            (SELECT max(m.start_lsn) FROM :cdc.lsn_time_mapping m WHERE m.tran_end_time < tracking_time)
        WHEN 'largest less than or equal' THEN
            (SELECT max(m.start_lsn) FROM :cdc.lsn_time_mapping m WHERE m.tran_end_time <= tracking_time)
        WHEN 'smallest greater than' THEN
            (SELECT min(m.start_lsn) FROM :cdc.lsn_time_mapping m WHERE m.tran_end_time > tracking_time)
        WHEN 'smallest greater than or equal' THEN
            (SELECT min(m.start_lsn) FROM :cdc.lsn_time_mapping m WHERE m.tran_end_time >= tracking_time)
    END;
EXCEPTION WHEN undefined_table OR invalid_schema_name THEN
    PERFORM emulator_cdc.raise(208, 16, 1, 'Invalid object name ''cdc.lsn_time_mapping''.');
END $$;
--;

CREATE OR REPLACE FUNCTION :sys.fn_cdc_get_column_ordinal(capture_instance varchar, column_name varchar) RETURNS int
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER AS $$
BEGIN
    RETURN (SELECT k.column_ordinal FROM :cdc.captured_columns k JOIN :cdc.change_tables c ON c.object_id = k.object_id
            WHERE lower(c.capture_instance) = lower($1) AND lower(k.column_name) = lower($2)
            ORDER BY (c.capture_instance = $1) DESC, (k.column_name = $2) DESC LIMIT 1);
EXCEPTION WHEN undefined_table OR invalid_schema_name THEN
    RETURN NULL;
END $$;
--;

-- Ordinal 1 is the lowest bit of the mask's last byte; a position beyond the mask is not set.
CREATE OR REPLACE FUNCTION :sys.fn_cdc_is_bit_set("position" int, update_mask bytea) RETURNS emulator.bit
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (CASE WHEN "position" BETWEEN 1 AND length(update_mask) * 8
                 THEN get_byte(update_mask, length(update_mask) - 1 - ("position" - 1) / 8) >> (("position" - 1) % 8) & 1
                 ELSE 0 END)::smallint::emulator.bit
$$;
--;

CREATE OR REPLACE FUNCTION :sys.fn_cdc_has_column_changed(capture_instance varchar, column_name varchar, update_mask bytea)
RETURNS emulator.bit LANGUAGE sql STABLE STRICT AS $$
    SELECT :sys.fn_cdc_is_bit_set(:sys.fn_cdc_get_column_ordinal(capture_instance, column_name), update_mask)
$$;
--;

-- True, or error 262, for the management views.
CREATE OR REPLACE FUNCTION :sys.cdc_check_state_right() RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    IF NOT emulator_cdc.caller_in(:database_id, 'db_owner') AND NOT emulator.caller_holds(:database_id,
            '{VIEW DATABASE STATE,VIEW DATABASE PERFORMANCE STATE,CONTROL}') THEN
        PERFORM emulator_cdc.raise(262, 14, 1, format('VIEW DATABASE PERFORMANCE STATE permission denied in database '
            '''%s''.', :'database'));
    END IF;
    RETURN true;
END $$;
--;

CREATE OR REPLACE VIEW :sys.dm_cdc_log_scan_sessions AS
    SELECT s.session_id, s.start_time::emulator.datetime AS start_time, s.end_time::emulator.datetime AS end_time,
           s.duration, s.scan_phase, s.error_count, s.start_lsn, s.current_lsn, s.end_lsn, s.tran_count, s.last_commit_lsn,
           s.last_commit_time::emulator.datetime AS last_commit_time, s.log_record_count, s.schema_change_count,
           s.command_count, s.first_begin_cdc_lsn, s.last_commit_cdc_lsn,
           s.last_commit_cdc_time::emulator.datetime AS last_commit_cdc_time, s.latency, s.empty_scan_count,
           s.failed_sessions_count
    FROM (SELECT * FROM emulator.cdc_log_scan_sessions WHERE database_id = :database_id
          UNION ALL SELECT * FROM emulator.cdc_scan_aggregate(:database_id)) AS s
    WHERE :sys.cdc_check_state_right();
--;

CREATE OR REPLACE VIEW :sys.dm_cdc_errors AS
    SELECT e.session_id, e.phase_number, e.entry_time::emulator.datetime AS entry_time, e.error_number, e.error_severity,
           e.error_state, e.error_message, e.start_lsn, e.begin_lsn, e.sequence_value
    FROM emulator.cdc_errors e WHERE :sys.cdc_check_state_right() AND e.database_id = :database_id;
--;

-- How far the log goes, for sys.dm_db_log_stats: its first place that is still needed, and its end, as LSNs.
CREATE OR REPLACE FUNCTION :sys.cdc_log_stats(wanted int) RETURNS TABLE (database_id int, recovery_model varchar(60),
    log_min_lsn varchar(24), log_end_lsn varchar(24), current_vlf_sequence_number bigint, active_log_size_mb float8,
    log_truncation_holdup_reason varchar(60))
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT d.database_id, 'FULL', emulator_cdc.lsn_text(p.low - p.shift), emulator_cdc.lsn_text(p.high - p.shift),
           div(p.high - p.shift, 16777216)::bigint + 32, round((p.high - p.low) / 1048576, 2)::float8,
           CASE emulator.log_reuse_wait(d.database_id) WHEN 6 THEN 'REPLICATION' ELSE 'NOTHING' END
    FROM emulator.databases d
    LEFT JOIN emulator.cdc_databases c USING (database_id)
    LEFT JOIN pg_replication_slots s ON s.slot_name = c.slot_name
    CROSS JOIN LATERAL (SELECT pg_current_wal_insert_lsn() - '0/0' AS high,
                               coalesce(s.confirmed_flush_lsn, pg_current_wal_insert_lsn()) - '0/0' AS low,
                               coalesce(c.lsn_shift, 0)::numeric AS shift) AS p
    WHERE d.database_id = wanted AND :sys.cdc_check_state_right()
$$;
--;

WITH made AS (
    INSERT INTO emulator.objects (database_id, schema_id, name, type, is_ms_shipped, is_system)
    SELECT :database_id, s.schema_id, 'dm_db_log_stats', 'IF', true, true FROM emulator.schemas s
    WHERE s.database_id = :database_id AND s.name = 'sys' AND NOT EXISTS (SELECT FROM emulator.objects o
        WHERE o.database_id = s.database_id AND o.schema_id = s.schema_id AND o.name = 'dm_db_log_stats')
    RETURNING object_id)
INSERT INTO emulator.inline_functions (object_id, parameters, body)
SELECT object_id, '[{"name": "@DatabaseId", "type": "int"}]',
    'SELECT l.database_id, l.recovery_model, l.log_min_lsn, l.log_end_lsn, l.current_vlf_sequence_number, '
        'l.active_log_size_mb, l.log_truncation_holdup_reason FROM :sys.cdc_log_stats($1) AS l'
FROM made;
