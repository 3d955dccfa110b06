-- Functions about the session: who is connected, and what they may do.

-- The session ---------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.login_name(current text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT nullif(current_setting('emulator.login', true), '') $$;
-- The readable secondary: whether there is one, whether this session is with it, and which databases it has.
CREATE OR REPLACE FUNCTION emulator.has_secondary() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(current_setting('emulator.secondary', true) = 'on', false) $$;
CREATE OR REPLACE FUNCTION emulator.is_read_only() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(current_setting('emulator.read_only', true) = 'on', false) $$;
CREATE OR REPLACE FUNCTION emulator.is_replicated(database text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT emulator.has_secondary() AND $1 NOT IN ('master', 'tempdb', 'model', 'msdb') $$;
CREATE OR REPLACE FUNCTION emulator.server_name() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN emulator.is_read_only() THEN 'FLOODMARK2' ELSE 'FLOODMARK' END $$;
CREATE OR REPLACE FUNCTION tsql.suser_sname(id bytea, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $1 IS NULL THEN tsql.login_name($2) WHEN $1 = '\x01' THEN 'sa' END $$;
CREATE OR REPLACE FUNCTION tsql.suser_id(login text, current text) RETURNS int LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT principal_id FROM emulator.logins WHERE lower(name) = lower(coalesce($1, tsql.login_name($2))) $$;
CREATE OR REPLACE FUNCTION tsql.app_name(current text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT nullif(current_setting('emulator.application', true), '') $$;
CREATE OR REPLACE FUNCTION tsql.host_name(current text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'localhost' $$;
CREATE OR REPLACE FUNCTION tsql.host_id(current text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT pg_backend_pid()::text $$;
CREATE OR REPLACE FUNCTION tsql.is_sysadmin() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT coalesce((SELECT l.is_sysadmin FROM emulator.logins l WHERE l.name = tsql.login_name(NULL)), false) $$;
CREATE OR REPLACE FUNCTION tsql.user_name(id int, current text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT CASE WHEN $1 IS NOT NULL THEN (SELECT name FROM emulator.principals WHERE principal_id = $1 AND database_id = tsql.db_id($2, $2))
        WHEN tsql.is_sysadmin() THEN 'dbo'
        ELSE coalesce((SELECT name FROM emulator.principals WHERE login = tsql.login_name($2) AND database_id = tsql.db_id($2, $2)), 'guest') END $$;
CREATE OR REPLACE FUNCTION tsql.database_principal_id(name text, current text) RETURNS int LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT p.principal_id FROM emulator.principals p
    WHERE p.database_id = tsql.db_id($2, $2) AND lower(p.name) = lower(coalesce($1, tsql.user_name(NULL, $2))) LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.user_id(name text, current text) RETURNS int LANGUAGE sql STABLE AS $$ SELECT tsql.database_principal_id($1, $2) $$;
CREATE OR REPLACE FUNCTION tsql.is_srvrolemember(role text, login text, current text) RETURNS int LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT CASE WHEN lower($1) = 'public' THEN 1
        WHEN lower($1) IN ('sysadmin', 'securityadmin', 'serveradmin', 'setupadmin', 'processadmin', 'diskadmin', 'dbcreator', 'bulkadmin')
        THEN CASE WHEN $2 IS NULL THEN tsql.is_sysadmin()::int ELSE (SELECT is_sysadmin::int FROM emulator.logins WHERE lower(name) = lower($2)) END END $$;
CREATE OR REPLACE FUNCTION tsql.is_rolemember(role text, principal text, current text) RETURNS int LANGUAGE sql STABLE SECURITY DEFINER AS $$
    WITH RECURSIVE wanted AS (SELECT principal_id FROM emulator.principals WHERE database_id = tsql.db_id($3, $3) AND type = 'R' AND lower(name) = lower($1)),
    held(id) AS (
        SELECT principal_id FROM emulator.principals WHERE database_id = tsql.db_id($3, $3) AND lower(name) = lower(coalesce($2, tsql.user_name(NULL, $3)))
        UNION SELECT m.role_principal_id FROM emulator.role_members m JOIN held ON m.member_principal_id = held.id WHERE m.database_id = tsql.db_id($3, $3))
    SELECT CASE WHEN $2 IS NULL AND tsql.is_sysadmin() AND lower($1) NOT LIKE 'db\_deny%' THEN 1
        WHEN NOT EXISTS (SELECT FROM wanted) THEN CASE WHEN lower($1) = 'public' THEN 1 END
        ELSE EXISTS (SELECT FROM wanted JOIN held ON held.id = wanted.principal_id)::int END $$;
CREATE OR REPLACE FUNCTION tsql.is_member(role text, current text) RETURNS int LANGUAGE sql STABLE AS $$ SELECT tsql.is_rolemember($1, NULL, $2) $$;
CREATE OR REPLACE FUNCTION tsql.has_dbaccess(database text, current text) RETURNS int LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT CASE WHEN tsql.db_id($1, $1) IS NULL THEN NULL
        ELSE (tsql.is_sysadmin() OR EXISTS (SELECT FROM emulator.principals WHERE database_id = tsql.db_id($1, $1) AND login = tsql.login_name($2)))::int END $$;
DROP FUNCTION IF EXISTS tsql.has_perms_by_name(text, text, text, text, int, text);
CREATE OR REPLACE FUNCTION tsql.has_perms_by_name(securable text, class text, permission text, sub_securable text, sub_class text, current text)
RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE relation oid;
BEGIN
    IF tsql.is_sysadmin() THEN RETURN 1; END IF;
    IF upper(class) = 'OBJECT' THEN
        relation := tsql.object_id(securable, NULL, current);
        IF relation IS NULL THEN RETURN NULL; END IF;
        IF upper(permission) = 'ALTER' THEN
            RETURN (tsql.is_member('db_ddladmin', current) = 1 OR tsql.is_member('db_owner', current) = 1
                    OR emulator.caller_holds(tsql.db_id(current, current), '{ALTER,CONTROL}', relation::int))::int;
        END IF;
        IF upper(permission) = 'UNMASK' THEN
            RETURN (SELECT emulator.caller_unmasks(o.database_id, o.schema_id, o.object_id, c.column_id)::int
                    FROM emulator.objects o
                    LEFT JOIN emulator.columns c ON c.object_id = o.object_id AND lower(c.name) = lower(sub_securable)
                    WHERE o.object_id = relation::int AND (sub_securable IS NULL OR c.column_id IS NOT NULL));
        END IF;
        IF upper(permission) = 'VIEW CHANGE TRACKING' THEN
            RETURN emulator.holds_tracking_right(relation::int)::int;
        END IF;
        RETURN (upper(permission) IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') AND has_table_privilege(relation, permission))::int;
    END IF;
    IF upper(class) = 'DATABASE' AND upper(permission) IN ('VIEW DATABASE STATE', 'VIEW DATABASE PERFORMANCE STATE') THEN
        RETURN (tsql.is_member('db_owner', current) = 1 OR emulator.caller_holds(
            tsql.db_id(coalesce(securable, current), current), ARRAY[upper(permission), 'VIEW DATABASE STATE', 'CONTROL']))::int;
    END IF;
    IF upper(class) = 'DATABASE' AND upper(permission) = 'UNMASK' THEN
        RETURN emulator.caller_unmasks(tsql.db_id(coalesce(securable, current), current), NULL, NULL, NULL)::int;
    END IF;
    IF upper(class) = 'DATABASE' AND upper(permission) IN ('VIEW DEFINITION', 'VIEW CHANGE TRACKING', 'ALTER ANY SECURITY POLICY') THEN
        RETURN (tsql.is_member('db_owner', current) = 1 OR emulator.caller_holds(
            tsql.db_id(coalesce(securable, current), current), ARRAY[upper(permission), 'CONTROL']))::int;
    END IF;
    RETURN 0;
END $$;

-- Values of the session ------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.session_context(key text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT nullif(current_setting('emulator.session_context', true), '')::json ->> key $$;
CREATE OR REPLACE FUNCTION tsql.context_info() RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT decode(nullif(current_setting('emulator.context_info', true), ''), 'hex') $$;

-- Recursion -----------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.max_recursion() RETURNS int LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE setting WHEN '' THEN 100 WHEN '0' THEN 2147483647 ELSE setting::int END
    FROM (SELECT coalesce(current_setting('emulator.max_recursion', true), '') AS setting) s $$;
-- VOLATILE keeps PostgreSQL from calling it while planning.
CREATE OR REPLACE FUNCTION tsql.recursion_exhausted() RETURNS int LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT tsql.fail(530, 'The statement terminated. The maximum recursion %s has been exhausted before statement completion.',
                     tsql.max_recursion()::text)::int $$;

-- sp_getapplock: 0 or 1 when the lock was granted, at once or after a wait; -1 after the timeout, -3 for a deadlock. The
-- transaction goes on in each case.
CREATE OR REPLACE FUNCTION emulator.get_applock(key bigint, is_shared boolean, is_session boolean, milliseconds int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    IF (CASE WHEN is_session AND is_shared THEN pg_try_advisory_lock_shared(key)
            WHEN is_session THEN pg_try_advisory_lock(key)
            WHEN is_shared THEN pg_try_advisory_xact_lock_shared(key)
            ELSE pg_try_advisory_xact_lock(key) END) THEN
        RETURN 0;
    ELSIF milliseconds = 0 THEN
        RETURN -1;
    END IF;
    PERFORM set_config('lock_timeout', greatest(milliseconds, 0)::text, true);
    IF is_session AND is_shared THEN PERFORM pg_advisory_lock_shared(key);
    ELSIF is_session THEN PERFORM pg_advisory_lock(key);
    ELSIF is_shared THEN PERFORM pg_advisory_xact_lock_shared(key);
    ELSE PERFORM pg_advisory_xact_lock(key);
    END IF;
    PERFORM set_config('lock_timeout', before, true);
    RETURN 1;
EXCEPTION
    WHEN lock_not_available THEN RETURN -1;
    WHEN deadlock_detected THEN RETURN -3;
END $$;

-- sp_releaseapplock: whether the session holds the lock. One that a transaction owns goes with the transaction.
CREATE OR REPLACE FUNCTION emulator.release_applock(key bigint, is_session boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    held text;
BEGIN
    SELECT mode INTO held FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 1
        AND (classid::bigint << 32) | objid::bigint = key ORDER BY mode LIMIT 1;
    IF held IS NULL OR NOT is_session THEN
        RETURN held IS NOT NULL;
    END IF;
    RETURN CASE WHEN held = 'ExclusiveLock' THEN pg_advisory_unlock(key) ELSE pg_advisory_unlock_shared(key) END;
END $$;
