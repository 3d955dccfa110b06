-- The beginning of T-SQL's function library, the files functions_*.sql: they run at every start of the server at which the
-- library has changed, so they must be repeatable. Names used by engine/translate; only functions_metadata.sql and
-- functions_session.sql read tables (schema emulator). Functions that can fail raise SQLSTATE MSSQL with the server's own
-- error number in DETAIL.
SET LOCAL check_function_bodies = off;
CREATE SCHEMA IF NOT EXISTS tsql;

-- Errors --------------------------------------------------------------------------------------------------------------

-- ``culprit``: the value at fault. It keeps PostgreSQL from calling this while planning, and names the value for %s.
CREATE OR REPLACE FUNCTION tsql.fail(number int, message text, culprit text, severity int DEFAULT 16, state int DEFAULT 1)
RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'MSSQL', MESSAGE = replace(message, '%s', coalesce(culprit, 'NULL')),
        DETAIL = json_build_object('number', number, 'severity', severity, 'state', state, 'procedure', '')::text;
END $$;

-- `+` of strings, where the translator does not know the types -------------------------------------------------------

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_operator WHERE oprname = '+' AND oprleft = 'text'::regtype AND oprright = 'text'::regtype) THEN
        CREATE OPERATOR tsql.+ (LEFTARG = text, RIGHTARG = text, FUNCTION = textcat);
    END IF;
END $$;
