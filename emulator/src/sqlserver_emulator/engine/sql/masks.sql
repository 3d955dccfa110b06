-- Dynamic data masking: which columns are masked, and who reads through. Run at every start, before the library.

ALTER TABLE emulator.columns ADD COLUMN IF NOT EXISTS masking_function varchar(4000);

-- Whether the session's login holds UNMASK: on the database, the schema, the object or the column. A DENY wins, but not
-- against db_owner; a sysadmin is not asked. NULL for a part that is not meant.
CREATE OR REPLACE FUNCTION emulator.caller_unmasks(database int, schema int, object int, col int) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    WITH held AS MATERIALIZED (SELECT principal_id FROM emulator.caller_principals($1) h(principal_id)),
    rights AS (
        SELECT d.state FROM held JOIN emulator.permissions d USING (principal_id)
        WHERE d.database_id = $1 AND d.permission IN ('UNMASK', 'CONTROL')
          AND (d.object_id IS NULL AND (d.schema_id IS NULL OR d.schema_id = $2)
               OR d.object_id = $3 AND (d.column_id = 0 OR d.column_id = $4)))
    SELECT EXISTS (SELECT 1 FROM held JOIN emulator.principals p USING (principal_id)
                   WHERE p.database_id = $1 AND p.name = 'db_owner')
        OR EXISTS (SELECT 1 FROM rights WHERE state <> 'D') AND NOT EXISTS (SELECT 1 FROM rights WHERE state = 'D')
$$;

-- The columns of a table whose values the session's login may not see.
CREATE OR REPLACE FUNCTION emulator.hidden_columns(object int) RETURNS SETOF int
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT c.column_id FROM emulator.columns c JOIN emulator.objects o ON o.object_id = c.object_id
    WHERE c.object_id = $1 AND c.masking_function IS NOT NULL
      AND NOT emulator.caller_unmasks(o.database_id, o.schema_id, o.object_id, c.column_id)
$$;

-- The tables behind a view, through other views.
CREATE OR REPLACE FUNCTION emulator.tables_of_view(view int) RETURNS SETOF int LANGUAGE sql STABLE SECURITY DEFINER AS $$
    WITH RECURSIVE used(id) AS (
        SELECT $1
        UNION
        SELECT d.refobjid::int FROM used JOIN pg_rewrite r ON r.ev_class = used.id::oid
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
    )
    SELECT id FROM used WHERE id <> $1
$$;
