-- Change Tracking (ADR 60): what is tracked, which transaction has which version, and the functions about them. The side
-- table, the triggers and the enumeration functions of a table are made when it is enabled (ddl/tracking/installing.py).

-- The row stays when tracking is switched off: versions go on where they were. last_version: the newest one then.
CREATE TABLE IF NOT EXISTS emulator.change_tracking_databases (
    database_id int PRIMARY KEY REFERENCES emulator.databases ON DELETE CASCADE,
    is_on boolean NOT NULL,
    is_auto_cleanup_on boolean NOT NULL DEFAULT true,
    retention_period int NOT NULL DEFAULT 2,
    retention_period_units smallint NOT NULL DEFAULT 3,
    last_version bigint NOT NULL DEFAULT 0,
    cleanup_version bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS emulator.change_tracking_tables (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    database_id int NOT NULL,
    is_track_columns_updated_on boolean NOT NULL,
    begin_version bigint NOT NULL,
    cleanup_version bigint NOT NULL DEFAULT 0,
    min_valid_version bigint NOT NULL
);
-- The object_id of the side table in sys.internal_tables. It is another one when the tracking begins again.
ALTER TABLE emulator.change_tracking_tables
    ADD COLUMN IF NOT EXISTS side_table_id int NOT NULL DEFAULT nextval('emulator.object_ids');
ALTER TABLE emulator.change_tracking_tables ADD COLUMN IF NOT EXISTS began_at timestamp(3) NOT NULL DEFAULT emulator.now();
-- A row a transaction that changed a tracked row of a database. It has its version from the moment of its commit on, so
-- that nobody else ever sees one without.
CREATE TABLE IF NOT EXISTS emulator.change_tracking_commits (
    database_id int NOT NULL,
    xdes_id bigint NOT NULL,
    commit_ts bigint,
    commit_lbn bigint,
    commit_csn bigint,
    commit_time timestamp(3),
    PRIMARY KEY (xdes_id, database_id),
    UNIQUE (database_id, commit_ts)
);
CREATE TABLE IF NOT EXISTS emulator.change_tracking_history (
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    table_name varchar(128) NOT NULL,
    start_time timestamp(3) NOT NULL,
    end_time timestamp(3) NOT NULL,
    rows_cleaned_up bigint NOT NULL,
    cleanup_version bigint NOT NULL,
    comments varchar(4000) NOT NULL
);
-- DATABASEPROPERTYEX reads it with the caller's rights.
GRANT SELECT ON emulator.change_tracking_databases TO PUBLIC;

-- Versions ------------------------------------------------------------------------------------------------------------

-- The session's transaction as one with a version, in each statement that changes a tracked row.
CREATE OR REPLACE FUNCTION emulator.tracked_transaction(database int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    own bigint := pg_current_xact_id()::text::bigint;
BEGIN
    INSERT INTO emulator.change_tracking_commits (database_id, xdes_id) VALUES (database, own) ON CONFLICT DO NOTHING;
    RETURN own;
END $$;

-- Run by COMMIT, for each database in which the transaction changed something. The lock is let go of after the
-- transaction can be seen: a session that sees a version sees all before it. A sequence counts, as the rows of others
-- may not be seen under SNAPSHOT; setval is logged by itself, so that no crash skips a number. To read the rows of
-- others, by a scan or by the index of versions, would make serializable transactions conflict: only the own row is read,
-- and the sum leaves the primary key as its only index.
CREATE OR REPLACE FUNCTION emulator.number_commit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = 0 SET enable_seqscan = off AS $$
DECLARE
    version bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(x'43545653'::bigint);
    EXECUTE format('SELECT setval(%L, last_value + 1) FROM %1$s', emulator.version_counter(NEW.database_id)) INTO version;
    UPDATE emulator.change_tracking_commits
    SET commit_ts = version, commit_csn = version, commit_lbn = pg_current_wal_insert_lsn() - '0/0'::pg_lsn, commit_time = emulator.now()
    WHERE xdes_id = NEW.xdes_id AND database_id + 0 = NEW.database_id;
    RETURN NULL;
END $$;
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'emulator.change_tracking_commits'::regclass AND NOT tgisinternal) THEN
        CREATE CONSTRAINT TRIGGER "number commit" AFTER INSERT ON emulator.change_tracking_commits
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION emulator.number_commit();
    END IF;
END $$;
CREATE OR REPLACE FUNCTION emulator.version_counter(database int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'emulator.change_tracking_version_' || $1
$$;

-- The newest version that the caller's snapshot sees; NULL: tracking is off.
CREATE OR REPLACE FUNCTION emulator.tracked_version(database int) RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT greatest(d.last_version, (SELECT max(c.commit_ts) FROM emulator.change_tracking_commits c WHERE c.database_id = $1))
    FROM emulator.change_tracking_databases d WHERE d.database_id = $1 AND d.is_on
$$;

-- Switches of a database ----------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION emulator.switch_tracking(database int, turns_on boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    home text;
BEGIN
    IF NOT turns_on THEN
        UPDATE emulator.change_tracking_databases d SET last_version = emulator.tracked_version(database), is_on = false
        WHERE d.database_id = database;
        DELETE FROM emulator.change_tracking_commits c WHERE c.database_id = database;
        RETURN;
    END IF;
    EXECUTE format('CREATE SEQUENCE IF NOT EXISTS %s MINVALUE 0 START 0', emulator.version_counter(database));
    INSERT INTO emulator.change_tracking_databases AS d (database_id, is_on) VALUES (database, true)
    ON CONFLICT (database_id) DO UPDATE
    SET is_on = true, is_auto_cleanup_on = true, retention_period = 2, retention_period_units = 3, cleanup_version = d.last_version;
    SELECT s.postgres_name INTO STRICT home FROM emulator.schemas s WHERE s.database_id = database AND s.name = 'dbo';
    IF to_regclass(format('%I.%I', home, 'MSchange_tracking_history')) IS NULL THEN
        EXECUTE format('CREATE VIEW %I.%I AS SELECT table_name, start_time::emulator.datetime AS start_time,
            end_time::emulator.datetime AS end_time, rows_cleaned_up, cleanup_version, comments
            FROM emulator.change_tracking_history WHERE database_id = %s', home, 'MSchange_tracking_history', database);
        PERFORM emulator.register_relation(database, 'dbo', 'MSchange_tracking_history', 'V', false);
    END IF;
END $$;

-- Rights --------------------------------------------------------------------------------------------------------------

-- Whether the caller holds VIEW CHANGE TRACKING on a table.
CREATE OR REPLACE FUNCTION emulator.holds_tracking_right(relation int) RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    home int := (SELECT o.database_id FROM emulator.objects o WHERE o.object_id = relation);
BEGIN
    IF EXISTS (SELECT FROM emulator.caller_principals(home) h(principal_id) JOIN emulator.principals p USING (principal_id)
               WHERE p.database_id = home AND p.name = 'db_owner') THEN
        RETURN true;
    END IF;
    RETURN emulator.caller_holds(home, '{VIEW CHANGE TRACKING,CONTROL}', relation) AND NOT EXISTS (
        SELECT FROM emulator.caller_principals(home) h(principal_id) JOIN emulator.permissions d USING (principal_id)
        WHERE d.database_id = home AND d.permission = 'VIEW CHANGE TRACKING' AND d.state = 'D'
          AND (d.object_id = relation OR d.object_id IS NULL
               AND (d.schema_id IS NULL OR d.schema_id = (SELECT o.schema_id FROM emulator.objects o WHERE o.object_id = relation))));
END $$;

-- The right that the caller lacks to see the changes of a table: '' where there is none.
CREATE OR REPLACE FUNCTION emulator.missing_tracking_right(relation int) RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    caller text := coalesce(nullif(current_setting('role', true), 'none'), session_user);
BEGIN
    IF tsql.is_sysadmin() THEN
        RETURN '';
    END IF;
    IF EXISTS (SELECT FROM emulator.key_attributes(relation) k WHERE NOT has_column_privilege(caller, relation::oid, k.attnum, 'SELECT')) THEN
        RETURN 'SELECT';
    END IF;
    RETURN CASE WHEN emulator.holds_tracking_right(relation) THEN '' ELSE 'VIEW CHANGE TRACKING' END;
END $$;

CREATE OR REPLACE FUNCTION emulator.key_attributes(relation int) RETURNS TABLE (attnum smallint, ordinal int)
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT c.attnum, ic.key_ordinal::int FROM emulator.objects k
    JOIN emulator.indexes i ON i.object_id = k.parent_object_id AND i.constraint_object_id = k.object_id
    JOIN emulator.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
    JOIN emulator.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
    WHERE k.parent_object_id = $1 AND k.type = 'PK'
$$;

-- The gate of CHANGETABLE: true, 229, or 22117 on a readable secondary.
CREATE OR REPLACE FUNCTION emulator.may_read_tracking(relation int) RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    lacking text := emulator.missing_tracking_right(relation);
BEGIN
    PERFORM emulator.refuse_tracking_on_secondary();
    IF lacking <> '' THEN
        PERFORM tsql.fail(229, format('The %s permission was denied on the object ''%s'', database ''%s'', schema ''%s''.',
                                      lacking, o.name, d.name, s.name), '', 14, 5)
        FROM emulator.objects o JOIN emulator.schemas s USING (database_id, schema_id) JOIN emulator.databases d USING (database_id)
        WHERE o.object_id = relation;
    END IF;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION emulator.refuse_tracking_on_secondary() RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF emulator.is_read_only() THEN
        PERFORM tsql.fail(22117, 'For databases that are members of a secondary availability replica (that is, for secondary databases), '
            'change tracking is not supported. Run change tracking queries on the databases in the primary availability replica.', '');
    END IF;
END $$;

-- The gate of sys.dm_tran_commit_table: true, or 262.
CREATE OR REPLACE FUNCTION emulator.may_read_commits(current text) RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    IF tsql.has_perms_by_name(current, 'DATABASE', 'VIEW DATABASE STATE', NULL, NULL, current) IS DISTINCT FROM 1 THEN
        PERFORM tsql.fail(262, format('VIEW DATABASE STATE permission denied in database ''%s''.', current), '', 14, 1);
    END IF;
    RETURN true;
END $$;

-- T-SQL's functions ---------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.change_tracking_current_version(current text) RETURNS bigint LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    PERFORM emulator.refuse_tracking_on_secondary();
    RETURN emulator.tracked_version(tsql.db_id(current, current));
END $$;

CREATE OR REPLACE FUNCTION tsql.change_tracking_min_valid_version(relation int, current text) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    PERFORM emulator.refuse_tracking_on_secondary();
    RETURN (SELECT t.min_valid_version FROM emulator.change_tracking_tables t
            WHERE t.object_id = relation AND t.database_id = tsql.db_id(current, current) AND emulator.missing_tracking_right(relation) = '');
END $$;

-- The mask: four bytes of no meaning, then the columns' numbers, four bytes each with the lowest first. What is behind
-- the last whole number does not count.
CREATE OR REPLACE FUNCTION tsql.change_tracking_is_column_in_mask(column_id int, mask bytea) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    wanted bytea := emulator.mask_entry(column_id);
BEGIN
    IF mask IS NULL THEN
        RETURN 1;
    END IF;
    IF length(mask) < 8 THEN
        PERFORM tsql.fail(22101, 'The value supplied for the change_columns argument of CHANGE_TRACKING_IS_COLUMN_IN_MASK function is not valid. '
            'The value must be a bitmask returned by the CHANGETABLE(CHANGES ...) function.', '');
    END IF;
    RETURN EXISTS (SELECT FROM generate_series(5, length(mask) - 3, 4) AS at WHERE substr(mask, at, 4) = wanted)::int;
END $$;

CREATE OR REPLACE FUNCTION emulator.mask_entry(column_id int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT substr(b, 4, 1) || substr(b, 3, 1) || substr(b, 2, 1) || substr(b, 1, 1) FROM int4send($1) AS b
$$;

-- The columns of several updates, each once, in the order in which they first came.
CREATE OR REPLACE FUNCTION emulator.merged_mask(entries bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT '\x00000000'::bytea || string_agg(entry, ''::bytea ORDER BY first)
    FROM (SELECT substr($1, at, 4) AS entry, min(at) AS first FROM generate_series(1, length($1), 4) AS at GROUP BY 1) AS e
$$;

-- Triggers ------------------------------------------------------------------------------------------------------------

-- Before a statement that assigns a column: note it for the trigger after the statement. Argument: the entry of the
-- column's mask as hex digits, or 'k' for the key's columns.
CREATE OR REPLACE FUNCTION emulator.note_assigned_column() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    setting text := 'emulator.assigned_' || TG_RELID;
BEGIN
    PERFORM set_config(setting, coalesce(current_setting(setting, true), '') || TG_ARGV[0], true);
    RETURN NULL;
END $$;

-- What the statement assigned; it is forgotten.
CREATE OR REPLACE FUNCTION emulator.take_assigned_columns(relation oid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    setting text := 'emulator.assigned_' || relation;
    said text := coalesce(current_setting(setting, true), '');
BEGIN
    IF said <> '' THEN
        PERFORM set_config(setting, '', true);
    END IF;
    RETURN said;
END $$;

-- A mask's entries in hex digits, one for each column, in the order of the SET list.
CREATE OR REPLACE FUNCTION emulator.in_set_order(said text, set_order text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT decode(coalesce(string_agg(entry, '' ORDER BY place, at), ''), 'hex')
    FROM (SELECT substr($1, at, 8) AS entry, at,
              (SELECT min(w) FROM generate_series(1, length($2), 8) AS w WHERE substr($2, w, 8) = substr($1, at, 8)) AS place
          FROM generate_series(1, length($1), 8) AS at) AS e
$$;

-- The context of the statement (WITH CHANGE_TRACKING_CONTEXT): 'x' and hex digits, or nothing.
CREATE OR REPLACE FUNCTION emulator.tracking_context() RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT decode(substr(nullif(current_setting('emulator.tracking_context', true), ''), 2), 'hex')
$$;

-- Cleanup -------------------------------------------------------------------------------------------------------------

-- The newest version of which, and of all before it, the retention is over. The clock may have been set back.
CREATE OR REPLACE FUNCTION emulator.expired_version(database int) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT greatest(d.cleanup_version, (
        SELECT coalesce(min(c.commit_ts) FILTER (WHERE c.commit_time >= emulator.now() - d.retention_period
                * CASE d.retention_period_units WHEN 1 THEN interval '1 minute' WHEN 2 THEN interval '1 hour' ELSE interval '1 day' END) - 1,
            max(c.commit_ts))
        FROM emulator.change_tracking_commits c WHERE c.database_id = $1))
    FROM emulator.change_tracking_databases d WHERE d.database_id = $1 AND d.is_on
$$;

-- Removes what no version that is still valid needs of one table. min_valid_version rises with the rows' removal, in one
-- transaction: a reader at a snapshot has both as they were.
CREATE OR REPLACE FUNCTION emulator.clean_tracked_table(relation int, up_to bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    began timestamp := emulator.now();
    removed bigint;
BEGIN
    UPDATE emulator.change_tracking_tables t SET cleanup_version = up_to, min_valid_version = greatest(t.min_valid_version, up_to)
    WHERE t.object_id = relation AND t.cleanup_version < up_to;
    EXECUTE format('DELETE FROM emulator.%I s USING emulator.change_tracking_commits c, emulator.change_tracking_tables t
        WHERE t.object_id = $1 AND c.database_id = t.database_id AND s.xdes_id = c.xdes_id AND c.commit_ts <= $2', 'change_tracking_' || relation)
    USING relation, up_to;
    GET DIAGNOSTICS removed = ROW_COUNT;
    INSERT INTO emulator.change_tracking_history
    SELECT o.database_id, o.name, began, emulator.now(), removed, up_to, 'Deleted rows of the side table'
    FROM emulator.objects o WHERE o.object_id = relation AND removed > 0;
    RETURN removed;
END $$;

-- The commit table, up to what every side table is rid of; the newest version stays, as it is the current one.
CREATE OR REPLACE FUNCTION emulator.clean_commit_table(database int, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    up_to bigint := least(emulator.expired_version(database), (SELECT min(t.cleanup_version) FROM emulator.change_tracking_tables t
                                                               WHERE t.database_id = database));
    removed bigint;
BEGIN
    DELETE FROM emulator.change_tracking_commits c WHERE c.database_id = database AND c.commit_ts IN (
        SELECT o.commit_ts FROM emulator.change_tracking_commits o
        WHERE o.database_id = database AND o.commit_ts <= up_to AND o.commit_ts < emulator.tracked_version(database)
        ORDER BY o.commit_ts LIMIT most);
    GET DIAGNOSTICS removed = ROW_COUNT;
    UPDATE emulator.change_tracking_databases d SET cleanup_version = greatest(d.cleanup_version, up_to) WHERE d.database_id = database;
    RETURN removed;
END $$;
