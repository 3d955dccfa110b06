-- Row-level security: policies and their filter predicates. Run at every start, before the library.

CREATE TABLE IF NOT EXISTS emulator.security_policies (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    is_enabled boolean NOT NULL,
    is_schema_bound boolean NOT NULL
);

-- condition: PostgreSQL's, over a row named "~filtered" of the target.
CREATE TABLE IF NOT EXISTS emulator.security_predicates (
    object_id int NOT NULL REFERENCES emulator.security_policies ON DELETE CASCADE,
    predicate_id int NOT NULL,
    target_object_id int NOT NULL UNIQUE,
    function_object_id int NOT NULL,
    definition text NOT NULL,
    condition text NOT NULL,
    PRIMARY KEY (object_id, predicate_id)
);

-- Whether a view or a user's function reads a table; those that change data capture makes read change tables only.
CREATE OR REPLACE FUNCTION emulator.is_read_by_modules(relation int) RETURNS boolean LANGUAGE sql STABLE AS $$
    WITH named AS (
        SELECT format('"%s"."%s"', s.postgres_name, o.postgres_name) AS name FROM emulator.objects o
        JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id WHERE o.object_id = $1)
    SELECT EXISTS (SELECT 1 FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
                   WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::oid AND r.ev_class <> $1::oid)
        OR EXISTS (SELECT 1 FROM emulator.inline_functions f, named WHERE strpos(f.body, named.name) > 0)
        OR EXISTS (SELECT 1 FROM emulator.functions f JOIN pg_proc p ON to_regproc(f.postgres_function) = p.oid, named
                   WHERE strpos(p.prosrc, named.name) > 0)
$$;

CREATE OR REPLACE FUNCTION emulator.caller_sees_policies(database int, policy int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT current_setting('is_superuser') = 'on' OR emulator.caller_defines($1, $2)
        OR emulator.caller_holds($1, '{ALTER ANY SECURITY POLICY}')
$$;
