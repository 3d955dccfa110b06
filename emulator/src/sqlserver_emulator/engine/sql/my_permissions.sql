-- fn_my_permissions: what the session's login may do, by the rights that are granted and checked.

-- Whether the login holds a right on a database, a schema of it or an object in that; NULL for a part that is not meant. A
-- DENY wins, but not against db_owner; a sysadmin is not asked. `roles`: fixed roles that have the right.
CREATE OR REPLACE FUNCTION emulator.caller_may(database int, schema int, object int, wanted text, roles text[]) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    WITH held AS MATERIALIZED (
        SELECT p.principal_id, p.name FROM emulator.caller_principals($1) h(principal_id)
        JOIN emulator.principals p ON p.database_id = $1 AND p.principal_id = h.principal_id),
    said AS (
        SELECT d.state, d.permission FROM held JOIN emulator.permissions d USING (principal_id)
        WHERE d.database_id = $1 AND d.column_id = 0 AND (d.permission IN ($4, 'CONTROL')
              OR $4 = 'VIEW DATABASE PERFORMANCE STATE' AND d.permission = 'VIEW DATABASE STATE')
          AND (d.object_id = $3 OR d.object_id IS NULL AND (d.schema_id IS NULL OR d.schema_id = $2)))
    SELECT tsql.is_sysadmin() OR EXISTS (SELECT FROM held WHERE name = 'db_owner')
        OR (EXISTS (SELECT FROM said WHERE state <> 'D') OR EXISTS (SELECT FROM held WHERE name = ANY ($5)))
           AND NOT EXISTS (SELECT FROM said WHERE state = 'D' AND permission IN ($4, 'CONTROL'))
$$;

-- The rights of a class, with the fixed roles that have them.
CREATE OR REPLACE FUNCTION emulator.rights_of_class(class text) RETURNS TABLE (permission varchar(60), roles text[])
LANGUAGE sql IMMUTABLE AS $$
    SELECT r.permission, r.roles FROM (VALUES
        ('DATABASE', 'ALTER ANY SCHEMA', '{db_ddladmin}'::text[]), ('DATABASE', 'CONNECT', '{public}'), ('DATABASE', 'CREATE FUNCTION', '{db_ddladmin}'),
        ('DATABASE', 'CREATE PROCEDURE', '{db_ddladmin}'), ('DATABASE', 'CREATE SCHEMA', '{db_ddladmin}'),
        ('DATABASE', 'CREATE SYNONYM', '{db_ddladmin}'), ('DATABASE', 'CREATE TABLE', '{db_ddladmin}'), ('DATABASE', 'CREATE TYPE', '{db_ddladmin}'),
        ('DATABASE', 'CREATE VIEW', '{db_ddladmin}'), ('DATABASE', 'VIEW DATABASE PERFORMANCE STATE', '{}'), ('DATABASE', 'VIEW DATABASE STATE', '{}'),
        ('SCHEMA', 'TAKE OWNERSHIP', '{}'), ('SCHEMA', 'VIEW CHANGE TRACKING', '{}'), ('OBJECT', 'TAKE OWNERSHIP', '{}'),
        ('SCHEMA', 'ALTER', '{db_ddladmin}'), ('OBJECT', 'ALTER', '{db_ddladmin}'), ('DATABASE', 'ALTER', '{}'),
        ('', 'CONTROL', '{}'), ('', 'DELETE', '{db_datawriter}'), ('', 'EXECUTE', '{}'), ('', 'INSERT', '{db_datawriter}'),
        ('', 'REFERENCES', '{}'), ('', 'SELECT', '{db_datareader}'), ('', 'UNMASK', '{}'), ('', 'UPDATE', '{db_datawriter}'),
        ('', 'VIEW DEFINITION', '{db_ddladmin,db_securityadmin}')) AS r (class, permission, roles)
    WHERE r.class IN ($1, '')
$$;

-- Those of a table or view, and of their columns, are what PostgreSQL says where it knows the right.
CREATE OR REPLACE FUNCTION emulator.my_object_permissions(object int) RETURNS TABLE (subentity_name varchar(128), permission varchar(60))
LANGUAGE sql STABLE AS $$
    WITH meant AS (SELECT o.* FROM emulator.visible_objects o WHERE o.object_id = $1)
    SELECT NULL::varchar(128), r.permission FROM meant o, emulator.rights_of_class('OBJECT') r
    WHERE CASE WHEN o.type IN ('U', 'V') THEN r.permission <> 'EXECUTE'
            WHEN o.type IN ('IF', 'TF') THEN r.permission NOT IN ('EXECUTE', 'UNMASK')
            ELSE r.permission NOT IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'UNMASK') END
      AND CASE WHEN o.type IN ('U', 'V') AND r.permission IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'REFERENCES')
            THEN has_table_privilege(o.object_id::oid, r.permission)
            ELSE emulator.caller_may(o.database_id, o.schema_id, o.object_id, r.permission, r.roles) END
    UNION ALL SELECT NULL, 'VIEW CHANGE TRACKING' FROM meant o
    WHERE o.type = 'U' AND (tsql.is_sysadmin() OR emulator.holds_tracking_right(o.object_id))
    UNION ALL SELECT c.name, r.permission FROM meant o JOIN emulator.columns c ON c.object_id = o.object_id,
        (VALUES ('REFERENCES'), ('SELECT'), ('UPDATE')) AS r (permission)
    WHERE o.type IN ('U', 'V') AND has_column_privilege(o.object_id::oid, c.attnum::smallint, r.permission)
    UNION ALL SELECT c.name, 'UNMASK' FROM meant o JOIN emulator.columns c ON c.object_id = o.object_id
    WHERE o.type = 'U' AND (tsql.is_sysadmin() OR emulator.caller_unmasks(o.database_id, o.schema_id, o.object_id, c.column_id))
$$;

-- The rows of fn_my_permissions in a database.
CREATE OR REPLACE FUNCTION emulator.my_permissions(database int, securable text, class text)
RETURNS TABLE (entity_name varchar(128), subentity_name varchar(128), permission_name varchar(60)) LANGUAGE plpgsql STABLE AS $$
DECLARE
    current text := (SELECT d.name FROM emulator.databases d WHERE d.database_id = $1);
    meant int;
BEGIN
    CASE upper(coalesce(class, 'SERVER'))
    WHEN 'SERVER' THEN
        RETURN QUERY SELECT 'server'::varchar(128), NULL::varchar(128), r.permission::varchar(60)
            FROM (VALUES ('CONNECT SQL', false), ('VIEW ANY DATABASE', false), ('ALTER ANY DATABASE', true), ('ALTER ANY LOGIN', true),
                ('CONTROL SERVER', true), ('CREATE ANY DATABASE', true), ('VIEW ANY DEFINITION', true),
                ('VIEW SERVER PERFORMANCE STATE', true), ('VIEW SERVER STATE', true)) AS r (permission, is_sysadmin)
            WHERE securable IS NULL AND (tsql.is_sysadmin() OR NOT r.is_sysadmin) ORDER BY r.permission;
    WHEN 'DATABASE' THEN
        meant := CASE WHEN securable IS NULL THEN $1 ELSE tsql.db_id(tsql.parsename(securable, 1), current) END;
        RETURN QUERY SELECT 'database'::varchar(128), NULL::varchar(128), r.permission FROM emulator.rights_of_class('DATABASE') r
            WHERE (meant = $1 OR tsql.has_dbaccess((SELECT d.name FROM emulator.databases d WHERE d.database_id = meant), current) = 1)
              AND emulator.caller_may(meant, NULL, NULL, r.permission, r.roles) ORDER BY r.permission;
    WHEN 'SCHEMA' THEN
        meant := (SELECT s.schema_id FROM emulator.schemas s WHERE s.database_id = $1 AND lower(s.name) = lower(tsql.parsename(securable, 1)));
        RETURN QUERY SELECT securable::varchar(128), NULL::varchar(128), r.permission FROM emulator.rights_of_class('SCHEMA') r
            WHERE meant IS NOT NULL AND emulator.caller_may($1, meant, NULL, r.permission, r.roles) ORDER BY r.permission;
    WHEN 'OBJECT' THEN
        meant := tsql.object_id(securable, NULL, current);
        RETURN QUERY SELECT securable::varchar(128), p.subentity_name, p.permission FROM emulator.my_object_permissions(meant) p
            ORDER BY p.subentity_name NULLS FIRST, p.permission;
    ELSE
        PERFORM tsql.fail(49999, 'sqlserver_emulator does not support fn_my_permissions of the class %s. See docs/emulator.md.', class);
    END CASE;
END $$;
