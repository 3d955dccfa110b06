-- What GRANT and DENY said, and who may see what. Run at every start.

-- Where PostgreSQL has a word for a right it holds it too; here is what was said. object_id and schema_id NULL: on the
-- database. column_id 0: on the whole object. state: G, W (with grant option) or D (denied).
CREATE TABLE IF NOT EXISTS emulator.permissions (
    database_id int NOT NULL,
    principal_id int NOT NULL,
    permission varchar(60) NOT NULL,
    object_id int REFERENCES emulator.objects ON DELETE CASCADE,
    schema_id int,
    column_id int NOT NULL DEFAULT 0,
    state "char" NOT NULL DEFAULT 'G',
    UNIQUE NULLS NOT DISTINCT (database_id, principal_id, permission, object_id, schema_id, column_id),
    FOREIGN KEY (database_id, principal_id) REFERENCES emulator.principals ON DELETE CASCADE,
    FOREIGN KEY (database_id, schema_id) REFERENCES emulator.schemas ON DELETE CASCADE
);
DO $$ BEGIN
    IF to_regclass('emulator.database_permissions') IS NOT NULL THEN  -- of an older data folder
        INSERT INTO emulator.permissions (database_id, principal_id, permission, object_id)
            SELECT database_id, principal_id, permission, object_id FROM emulator.database_permissions;
        DROP TABLE emulator.database_permissions;
    END IF;
END $$;

-- The session's login as a principal of a database, with its roles and public.
CREATE OR REPLACE FUNCTION emulator.caller_principals(database int) RETURNS SETOF int
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    WITH RECURSIVE held AS (
        SELECT p.principal_id FROM emulator.principals p
        WHERE p.database_id = $1 AND (p.type = 'S' AND lower(p.login) = lower(current_setting('emulator.login', true))
                                      OR p.type = 'R' AND p.name = 'public')
        UNION
        SELECT m.role_principal_id FROM emulator.role_members m JOIN held h ON m.member_principal_id = h.principal_id
        WHERE m.database_id = $1
    )
    SELECT principal_id FROM held
$$;

-- Whether the session's login holds one of these rights in a database, itself, through roles or as everybody; on the
-- object too, or its schema, if one is named.
CREATE OR REPLACE FUNCTION emulator.caller_holds(database int, rights text[], object int DEFAULT NULL) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT EXISTS (SELECT 1 FROM emulator.caller_principals($1) h(principal_id) JOIN emulator.permissions d USING (principal_id)
                   WHERE d.database_id = $1 AND d.permission = ANY ($2) AND d.state <> 'D' AND d.column_id = 0
                     AND (d.object_id = $3 OR d.object_id IS NULL
                          AND (d.schema_id IS NULL OR d.schema_id = (SELECT o.schema_id FROM emulator.objects o WHERE o.object_id = $3))))
$$;

-- Metadata visibility: a login sees the tables and views on which it has any right, and what belongs to them. Roles that
-- may change every object see all.
CREATE OR REPLACE FUNCTION emulator.caller_defines(database int, relation int) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT emulator.caller_holds($1, '{VIEW DEFINITION,ALTER,CONTROL,TAKE OWNERSHIP}', $2)
        OR EXISTS (SELECT 1 FROM emulator.caller_principals($1) h(principal_id) JOIN emulator.principals p USING (principal_id)
                   WHERE p.database_id = $1 AND p.name IN ('db_owner', 'db_ddladmin', 'db_securityadmin'))
$$;
CREATE OR REPLACE FUNCTION emulator.caller_sees(database int, relation int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(has_any_column_privilege($2::oid, 'SELECT, INSERT, UPDATE, REFERENCES') OR has_table_privilege($2::oid, 'DELETE'), false)
        OR emulator.caller_defines($1, $2)
$$;

-- The objects that the session's role sees. Procedures, functions and types are shown to everyone.
CREATE OR REPLACE VIEW emulator.visible_objects AS
SELECT o.* FROM emulator.objects o
WHERE current_setting('is_superuser') = 'on' OR o.is_system OR o.type NOT IN ('U', 'V') AND o.parent_object_id = 0
   OR emulator.caller_sees(o.database_id, CASE o.parent_object_id WHEN 0 THEN o.object_id ELSE o.parent_object_id END);
GRANT SELECT ON emulator.visible_objects TO PUBLIC;

-- A login's own role: it has the rights of all its users, so that a statement may name tables of several databases.
CREATE OR REPLACE FUNCTION emulator.login_role(login text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT 'login~' || l.principal_id FROM emulator.logins l WHERE lower(l.name) = lower($1)
$$;
CREATE OR REPLACE FUNCTION emulator.refresh_login_role(login text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    own text := emulator.login_role(login);
    part text;
BEGIN
    IF own IS NULL THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = own) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', own);
    END IF;
    FOR part IN
        SELECT p.postgres_role FROM emulator.principals p
        JOIN emulator.databases d USING (database_id) JOIN pg_roles r ON r.rolname = p.postgres_role
        WHERE p.type = 'S' AND (lower(p.login) = lower($1) OR p.name = 'guest' AND d.name IN ('master', 'tempdb', 'msdb'))
          AND NOT pg_has_role(own, r.oid, 'MEMBER')
    LOOP
        EXECUTE format('GRANT %I TO %I', part, own);
    END LOOP;
END $$;
SELECT emulator.refresh_login_role(l.name) FROM emulator.logins l WHERE NOT l.is_sysadmin;
