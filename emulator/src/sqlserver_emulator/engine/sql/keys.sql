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
            -- A session keeps a description of each table, with its triggers, and makes it anew when the table's row in
            -- pg_class is written, not when one of pg_trigger is. Without this it knows of a trigger for no index, which
            -- checks nothing, until the transaction ends.
            UPDATE pg_class SET relhastriggers = true WHERE oid = key.indrelid;
        END IF;
        UPDATE pg_index i SET indimmediate = false WHERE i.indexrelid = key.indexrelid;
    END LOOP;
END $$;

-- A table's foreign keys, or some of them, are just gone from PostgreSQL, and still in the catalog.
CREATE OR REPLACE FUNCTION emulator.free_referenced_keys(parent_object_id int) RETURNS void LANGUAGE sql AS $$
    SELECT emulator.check_keys_at_end(f.referenced_object_id::oid) FROM emulator.foreign_keys f
    WHERE f.parent_object_id = $1
$$;

-- Foreign keys over strings ---------------------------------------------------------------------------------------------

-- PostgreSQL keeps with each foreign key the operators by which its queries compare, and would compare varchar as it is.
-- In their place come those of the columns' collations; of a binary one that of bpchar, to which blanks do not count.

CREATE OR REPLACE FUNCTION emulator.key_operator(object_id oid, attribute smallint, plain oid) RETURNS oid LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN c.collation_name IS NULL THEN plain
        WHEN c.collation_name ~* '_BIN2?$' THEN 'pg_catalog.=(bpchar, bpchar)'::regoperator
        ELSE format('tsql.===(tsql.%1$s, tsql.%1$s)', lower(right(c.collation_name, 5)))::regoperator END
    FROM emulator.columns c WHERE c.object_id = $1::int AND c.attnum = $2
$$;

CREATE OR REPLACE FUNCTION emulator.compare_keys_by_collation(relation oid) RETURNS void LANGUAGE sql
SET allow_system_table_mods = on AS $$
    UPDATE pg_constraint f SET conpfeqop = o.operators, conppeqop = o.operators
    FROM pg_constraint k CROSS JOIN LATERAL (
        SELECT array_agg(emulator.key_operator(k.conrelid, c.attribute, c.plain) ORDER BY c.place) AS operators
        FROM unnest(k.conkey, k.conffeqop) WITH ORDINALITY AS c(attribute, plain, place)) AS o
    WHERE k.oid = f.oid AND f.contype = 'f' AND relation IN (f.conrelid, f.confrelid)
        AND EXISTS (SELECT FROM emulator.columns c WHERE c.object_id = k.conrelid::int AND c.attnum = ANY (k.conkey)
            AND c.collation_name IS NOT NULL)
$$;

-- Before DDL that makes PostgreSQL check the rows again by the operators of their types. compare_keys_by_collation follows.
CREATE OR REPLACE FUNCTION emulator.compare_keys_plainly(relation oid) RETURNS void LANGUAGE sql
SET allow_system_table_mods = on AS $$
    UPDATE pg_constraint f SET conpfeqop = f.conffeqop, conppeqop = f.conffeqop
    WHERE f.contype = 'f' AND relation IN (f.conrelid, f.confrelid) AND f.conpfeqop <> f.conffeqop
$$;
