-- Dates and times with seven digits of a second, for which PostgreSQL's own types have no room (ADR 49): an int8 of ticks
-- of 100 ns under a type of its own, with int8's own functions. datetime2 counts from year 1, time from midnight. Types of
-- fewer digits are PostgreSQL's timestamp and time.

DO $$
DECLARE
    type text;
    definition record;
    internal text := 'LANGUAGE internal IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS';
BEGIN
    FOREACH type IN ARRAY ARRAY['datetime2', 'time'] LOOP
        EXECUTE format('CREATE TYPE tsql.%I', type);
        FOR definition IN SELECT * FROM (VALUES
            ('in(cstring)', 'tsql.%I', 'int8in'), ('out(tsql.%I)', 'cstring', 'int8out'),
            ('recv(internal)', 'tsql.%I', 'int8recv'), ('send(tsql.%I)', 'bytea', 'int8send')
        ) AS d(name, result, body) LOOP
            EXECUTE format('CREATE FUNCTION tsql.' || type || '_' || definition.name, type)
                || format(' RETURNS ' || definition.result, type) || format(' %s %L', internal, definition.body);
        END LOOP;
        EXECUTE format('CREATE TYPE tsql.%1$I (INPUT = tsql.%1$s_in, OUTPUT = tsql.%1$s_out, RECEIVE = tsql.%1$s_recv,'
            ' SEND = tsql.%1$s_send, LIKE = int8)', type);
        EXECUTE format('CREATE FUNCTION tsql.ticks(value tsql.%I) RETURNS bigint %s ''int8up''', type, internal);
        EXECUTE format('CREATE FUNCTION tsql.%1$s_of(ticks bigint) RETURNS tsql.%1$I %2$s ''int8up''', type, internal);
        EXECUTE format('CREATE CAST (tsql.%I AS bigint) WITHOUT FUNCTION', type);
        -- In pg_catalog, where every session finds an operator and an aggregate without their schema.
        FOR definition IN SELECT * FROM (VALUES
            ('<', 'lt', '>', '>=', 'scalarlt', ''), ('<=', 'le', '>=', '>', 'scalarle', ''),
            ('=', 'eq', '=', '<>', 'eq', ', MERGES, HASHES'), ('<>', 'ne', '<>', '=', 'neq', ''),
            ('>=', 'ge', '<=', '<', 'scalarge', ''), ('>', 'gt', '<', '<=', 'scalargt', '')
        ) AS d(sign, name, commutator, negator, estimator, more) LOOP
            EXECUTE format('CREATE FUNCTION tsql.%1$s_%2$s(tsql.%1$I, tsql.%1$I) RETURNS boolean %3$s ''int8%2$s''', type,
                definition.name, internal);
            EXECUTE format('CREATE OPERATOR pg_catalog.%1$s (LEFTARG = tsql.%2$I, RIGHTARG = tsql.%2$I, FUNCTION = tsql.%2$s_%3$s,'
                ' COMMUTATOR = OPERATOR(pg_catalog.%4$s), NEGATOR = OPERATOR(pg_catalog.%5$s), RESTRICT = %6$ssel, JOIN = %6$sjoinsel%7$s)',
                definition.sign, type, definition.name, definition.commutator, definition.negator, definition.estimator, definition.more);
        END LOOP;
        EXECUTE format('CREATE FUNCTION tsql.%1$s_cmp(tsql.%1$I, tsql.%1$I) RETURNS int %2$s ''btint8cmp''', type, internal);
        EXECUTE format('CREATE FUNCTION tsql.%1$s_hash(tsql.%1$I) RETURNS int %2$s ''hashint8''', type, internal);
        EXECUTE format('CREATE OPERATOR CLASS tsql.%1$s_ops DEFAULT FOR TYPE tsql.%1$I USING btree AS OPERATOR 1 <, OPERATOR 2 <=,'
            ' OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 tsql.%1$s_cmp(tsql.%1$I, tsql.%1$I)', type);
        EXECUTE format('CREATE OPERATOR CLASS tsql.%1$s_hash_ops DEFAULT FOR TYPE tsql.%1$I USING hash AS OPERATOR 1 =,'
            ' FUNCTION 1 tsql.%1$s_hash(tsql.%1$I)', type);
        FOR definition IN SELECT * FROM (VALUES ('min', 'smaller', '<'), ('max', 'larger', '>')) AS d(name, kept, sign) LOOP
            EXECUTE format('CREATE FUNCTION tsql.%1$s_%2$s(tsql.%1$I, tsql.%1$I) RETURNS tsql.%1$I %3$s ''int8%2$s''', type,
                definition.kept, internal);
            EXECUTE format('CREATE AGGREGATE pg_catalog.%1$s(tsql.%2$I) (SFUNC = tsql.%2$s_%3$s, STYPE = tsql.%2$I,'
                ' SORTOP = OPERATOR(pg_catalog.%4$s), COMBINEFUNC = tsql.%2$s_%3$s, PARALLEL = SAFE)',
                definition.name, type, definition.kept, definition.sign);
        END LOOP;
    END LOOP;
END $$;

-- PostgreSQL's own types are an int8 of microseconds underneath: since 2000, and since midnight.
CREATE FUNCTION tsql.microseconds(value timestamp) RETURNS bigint LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8up';
CREATE FUNCTION tsql.microseconds(value time) RETURNS bigint LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8up';
CREATE FUNCTION tsql.timestamp_of(microseconds bigint) RETURNS timestamp LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8up';
CREATE FUNCTION tsql.coarse_time_of(microseconds bigint) RETURNS time LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int8up';

-- 63082281600000000 is 2000-01-01 in microseconds since year 1.
CREATE FUNCTION tsql.to_ticks(value timestamp) RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.datetime2_of((tsql.microseconds(value) + 63082281600000000) * 10);
CREATE FUNCTION tsql.to_ticks(value date) RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.to_ticks(value::timestamp);
CREATE FUNCTION tsql.to_ticks(value time) RETURNS tsql.time LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.time_of(tsql.microseconds(value) * 10);
-- Without the seventh digit.
CREATE FUNCTION tsql.cut(value tsql.datetime2) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.timestamp_of(tsql.ticks(value) / 10 - 63082281600000000);
CREATE FUNCTION tsql.time_of_day(value tsql.datetime2) RETURNS tsql.time LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.time_of(tsql.ticks(value) % 864000000000);
CREATE FUNCTION tsql.time_of_day(value timestamp) RETURNS tsql.time LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.time_of_day(tsql.to_ticks(value));
CREATE FUNCTION tsql.day_of(value tsql.datetime2) RETURNS date LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.cut(value)::date;
-- A time needs a day to be counted in; 1900-01-01 is the one that the server uses.
CREATE FUNCTION tsql.in_1900(value tsql.time) RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.datetime2_of(tsql.ticks(value) + 599266080000000000);

-- Rounding to fewer digits, half a unit upwards; by a modifier of PostgreSQL's types, -1 for six digits.
CREATE FUNCTION tsql.round_ticks(ticks bigint, digits int) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (ticks + (10 ^ (7 - digits))::bigint / 2) / (10 ^ (7 - digits))::bigint * (10 ^ (7 - digits))::bigint;
CREATE FUNCTION tsql.rounded(value tsql.datetime2, modifier int, explicit boolean) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.timestamp_of(tsql.round_ticks(tsql.ticks(value), CASE WHEN modifier < 0 THEN 6 ELSE modifier END) / 10 - 63082281600000000);
-- A time that is rounded up to midnight is midnight.
CREATE FUNCTION tsql.rounded(value tsql.time, modifier int, explicit boolean) RETURNS time LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.coarse_time_of(tsql.round_ticks(tsql.ticks(value), CASE WHEN modifier < 0 THEN 6 ELSE modifier END) % 864000000000 / 10);
CREATE FUNCTION tsql.rounded_time(value tsql.datetime2, modifier int, explicit boolean) RETURNS time LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.rounded(tsql.time_of_day(value), modifier, explicit);

-- More digits lose nothing, so PostgreSQL may add them by itself; fewer are the work of an assignment or a CAST.
CREATE CAST (timestamp AS tsql.datetime2) WITH FUNCTION tsql.to_ticks(timestamp) AS IMPLICIT;
CREATE CAST (date AS tsql.datetime2) WITH FUNCTION tsql.to_ticks(date) AS IMPLICIT;
CREATE CAST (time AS tsql.time) WITH FUNCTION tsql.to_ticks(time) AS IMPLICIT;
CREATE CAST (timestamp AS tsql.time) WITH FUNCTION tsql.time_of_day(timestamp) AS ASSIGNMENT;
CREATE CAST (tsql.datetime2 AS timestamp) WITH FUNCTION tsql.rounded(tsql.datetime2, int, boolean) AS ASSIGNMENT;
CREATE CAST (tsql.datetime2 AS date) WITH FUNCTION tsql.day_of(tsql.datetime2) AS ASSIGNMENT;
CREATE CAST (tsql.datetime2 AS tsql.time) WITH FUNCTION tsql.time_of_day(tsql.datetime2) AS ASSIGNMENT;
CREATE CAST (tsql.datetime2 AS time) WITH FUNCTION tsql.rounded_time(tsql.datetime2, int, boolean) AS ASSIGNMENT;
CREATE CAST (tsql.time AS time) WITH FUNCTION tsql.rounded(tsql.time, int, boolean) AS ASSIGNMENT;

-- datetimeoffset keeps its offset and compares by instant.
CREATE TYPE tsql.datetimeoffset AS (utc tsql.datetime2, offset_minutes smallint);

CREATE FUNCTION tsql.datetimeoffset_lt(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT (a).utc < (b).utc $$;
CREATE FUNCTION tsql.datetimeoffset_le(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT (a).utc <= (b).utc $$;
CREATE FUNCTION tsql.datetimeoffset_eq(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT (a).utc = (b).utc $$;
CREATE FUNCTION tsql.datetimeoffset_ne(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT (a).utc <> (b).utc $$;
CREATE FUNCTION tsql.datetimeoffset_ge(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT (a).utc >= (b).utc $$;
CREATE FUNCTION tsql.datetimeoffset_gt(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT (a).utc > (b).utc $$;
CREATE FUNCTION tsql.datetimeoffset_cmp(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS int
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT tsql.datetime2_cmp((a).utc, (b).utc) $$;
CREATE FUNCTION tsql.datetimeoffset_hash(a tsql.datetimeoffset) RETURNS int
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT tsql.datetime2_hash((a).utc) $$;

CREATE OPERATOR tsql.< (LEFTARG = tsql.datetimeoffset, RIGHTARG = tsql.datetimeoffset,
    FUNCTION = tsql.datetimeoffset_lt, COMMUTATOR = OPERATOR(tsql.>), NEGATOR = OPERATOR(tsql.>=));
CREATE OPERATOR tsql.<= (LEFTARG = tsql.datetimeoffset, RIGHTARG = tsql.datetimeoffset,
    FUNCTION = tsql.datetimeoffset_le, COMMUTATOR = OPERATOR(tsql.>=), NEGATOR = OPERATOR(tsql.>));
CREATE OPERATOR tsql.= (LEFTARG = tsql.datetimeoffset, RIGHTARG = tsql.datetimeoffset,
    FUNCTION = tsql.datetimeoffset_eq, COMMUTATOR = OPERATOR(tsql.=), NEGATOR = OPERATOR(tsql.<>),
    MERGES, HASHES);
CREATE OPERATOR tsql.<> (LEFTARG = tsql.datetimeoffset, RIGHTARG = tsql.datetimeoffset,
    FUNCTION = tsql.datetimeoffset_ne, COMMUTATOR = OPERATOR(tsql.<>), NEGATOR = OPERATOR(tsql.=));
CREATE OPERATOR tsql.>= (LEFTARG = tsql.datetimeoffset, RIGHTARG = tsql.datetimeoffset,
    FUNCTION = tsql.datetimeoffset_ge, COMMUTATOR = OPERATOR(tsql.<=), NEGATOR = OPERATOR(tsql.<));
CREATE OPERATOR tsql.> (LEFTARG = tsql.datetimeoffset, RIGHTARG = tsql.datetimeoffset,
    FUNCTION = tsql.datetimeoffset_gt, COMMUTATOR = OPERATOR(tsql.<), NEGATOR = OPERATOR(tsql.<=));
CREATE OPERATOR CLASS tsql.datetimeoffset_ops DEFAULT FOR TYPE tsql.datetimeoffset USING btree AS
    OPERATOR 1 tsql.<, OPERATOR 2 tsql.<=, OPERATOR 3 tsql.=, OPERATOR 4 tsql.>=, OPERATOR 5 tsql.>,
    FUNCTION 1 tsql.datetimeoffset_cmp(tsql.datetimeoffset, tsql.datetimeoffset);
CREATE OPERATOR CLASS tsql.datetimeoffset_hash_ops DEFAULT FOR TYPE tsql.datetimeoffset USING hash AS
    OPERATOR 1 tsql.=, FUNCTION 1 tsql.datetimeoffset_hash(tsql.datetimeoffset);
