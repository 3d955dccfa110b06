-- When unique keys are checked: at the end of the statement, as SQL Server does, so that UPDATE t SET id = id + 1 moves
-- each row onto a key that another row still has. Run at every start.

-- PostgreSQL does this for constraints declared DEFERRABLE, which neither foreign keys may refer to nor indexes over
-- expressions or with a condition may be. What it does for them is a mark in pg_index, by which an insertion into the
-- index only notes a row whose key is taken, and a trigger that looks again at the rows that were noted. Both are made
-- here for every unique index. A row whose key is free costs what it costs otherwise.

-- The unique indexes of a table and of those that its foreign keys refer to.
CREATE OR REPLACE FUNCTION emulator.keys_about(relation oid) RETURNS SETOF pg_index LANGUAGE sql STABLE AS $$
    SELECT i.* FROM pg_index i WHERE i.indisunique AND i.indrelid IN
        (SELECT $1 UNION SELECT f.confrelid FROM pg_constraint f WHERE f.conrelid = $1 AND f.contype = 'f')
$$;

-- Check them row by row: before DDL to which PostgreSQL demands that. check_keys_at_end follows.
CREATE OR REPLACE FUNCTION emulator.check_keys_at_once(relation oid) RETURNS void LANGUAGE sql
SET allow_system_table_mods = on AS $$
    UPDATE pg_index i SET indimmediate = true FROM emulator.keys_about($1) k
    WHERE i.indexrelid = k.indexrelid AND NOT i.indimmediate
$$;

-- A key from which changes cascade is left alone: PostgreSQL cascades row by row, and would move a row twice.
CREATE OR REPLACE FUNCTION emulator.check_keys_at_end(relation oid) RETURNS void LANGUAGE plpgsql
SET allow_system_table_mods = on AS $$
DECLARE
    key record;
BEGIN
    FOR key IN SELECT k.indexrelid, k.indrelid, 'key~' || k.indexrelid AS name FROM emulator.keys_about(relation) k
               WHERE k.indimmediate AND NOT EXISTS (SELECT FROM pg_constraint f WHERE f.contype = 'f'
                   AND f.conindid = k.indexrelid AND f.confupdtype NOT IN ('a', 'r')) LOOP
        IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = key.indrelid AND t.tgname = key.name) THEN
            EXECUTE format('CREATE CONSTRAINT TRIGGER %I AFTER INSERT OR UPDATE ON %s DEFERRABLE INITIALLY IMMEDIATE
                            FOR EACH ROW EXECUTE FUNCTION unique_key_recheck()', key.name, key.indrelid::regclass);
            WITH made AS (
                UPDATE pg_trigger t SET tgconstrindid = key.indexrelid, tgenabled = 'A'
                WHERE t.tgrelid = key.indrelid AND t.tgname = key.name RETURNING t.oid
            )
            INSERT INTO pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)
            SELECT 'pg_trigger'::regclass, made.oid, 0, 'pg_class'::regclass, key.indexrelid, 0, 'a' FROM made;
        END IF;
        UPDATE pg_index i SET indimmediate = false WHERE i.indexrelid = key.indexrelid;
    END LOOP;
END $$;

-- A table's foreign keys, or some of them, are just gone from PostgreSQL, and still in the catalog.
CREATE OR REPLACE FUNCTION emulator.free_referenced_keys(parent_object_id int) RETURNS void LANGUAGE sql AS $$
    SELECT emulator.check_keys_at_end(f.referenced_object_id::oid) FROM emulator.foreign_keys f
    WHERE f.parent_object_id = $1
$$;
