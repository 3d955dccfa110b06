-- Collations: for each that is not binary a key, whose bytes are compared in place of the string, and a type that is the
-- string itself and compares by that key. Comparisons, joins, orders and indexes use the key: it is made once a row.
-- GROUP BY, DISTINCT and set operations use the type: of the strings that are one they keep one as it is.
-- A key has up to three levels: letters without accents and case, then accents, then case (small before capital).
-- The wheel's PostgreSQL has no ICU: beyond accents, the order of letters is that of their code points.

-- Databases and columns of a data folder from before collations are binary.
ALTER TABLE emulator.databases ADD COLUMN IF NOT EXISTS collation_name varchar(128) NOT NULL DEFAULT 'Latin1_General_100_BIN2';
ALTER TABLE emulator.columns ADD COLUMN IF NOT EXISTS collation_name varchar(128);

-- The bytes of a text: `varchar` returns a value as it is when there is no length to check.
CREATE OR REPLACE FUNCTION tsql.bytes_of(value text, modifier int, explicit boolean) RETURNS bytea
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'varchar';

-- Small and capital letters of ASCII change places: in the order of bytes capitals come first.
CREATE OR REPLACE FUNCTION tsql.small_first(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN translate(value, 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ', 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz');

-- What LIKE and CHARINDEX compare: blanks at the end count.
CREATE OR REPLACE FUNCTION tsql.folded(value text, case_counts boolean, accents_count boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    value := normalize(value, NFKC);
    IF NOT accents_count THEN
        value := normalize(regexp_replace(normalize(value, NFD), '[\u0300-\u036F]', '', 'g'), NFC);
    END IF;
    RETURN CASE WHEN case_counts THEN value ELSE casefold(value COLLATE pg_c_utf8) END;
END $$;

-- The same for functions that count characters. What makes several characters of one, or one of several, is refused.
CREATE OR REPLACE FUNCTION tsql.folded_in_place(value text, case_counts boolean, accents_count boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    found text := value;
BEGIN
    IF octet_length(value) = char_length(value) THEN
        RETURN CASE WHEN case_counts THEN value ELSE lower(value COLLATE "C") END;
    END IF;
    found := tsql.folded(value, case_counts, accents_count);
    IF char_length(found) <> char_length(value) THEN
        PERFORM tsql.fail(49999, 'The emulator does not support finding a place in a string with ligatures, wide forms or separate accents, '
            'unless its collation is binary.', '');
    END IF;
    RETURN found;
END $$;

CREATE OR REPLACE FUNCTION tsql.replace_folded(value text, old text, new text, case_counts boolean, accents_count boolean)
RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    searched text := tsql.folded_in_place(value, case_counts, accents_count);
    wanted text := tsql.folded_in_place(old, case_counts, accents_count);
    done text := '';
    place int;
BEGIN
    IF old = '' THEN
        RETURN value;
    END IF;
    LOOP
        place := strpos(searched, wanted);
        EXIT WHEN place = 0;
        done := done || left(value, place - 1) || new;
        value := substr(value, place + char_length(wanted));
        searched := substr(searched, place + char_length(wanted));
    END LOOP;
    RETURN done || value;
END $$;

-- Single characters in both cases, for TRIM and TRANSLATE.
CREATE OR REPLACE FUNCTION tsql.both_cases(characters text, case_counts boolean, accents_count boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF NOT accents_count AND octet_length(characters) <> char_length(characters) THEN
        PERFORM tsql.fail(49999, 'The emulator does not support TRIM and TRANSLATE of accented characters without regard to accents.', '');
    END IF;
    RETURN CASE WHEN case_counts THEN characters ELSE characters || upper(characters) || lower(characters) END;
END $$;

CREATE OR REPLACE FUNCTION tsql.translate_folded(value text, old text, new text, case_counts boolean, accents_count boolean)
RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN tsql.translate(value, tsql.both_cases(old, case_counts, accents_count), CASE WHEN case_counts THEN new ELSE new || new || new END);
END $$;

-- The key of a string that is not ASCII; of ASCII it is what the functions below make of it.
CREATE OR REPLACE FUNCTION tsql.key_levels(value text, case_counts boolean, accents_count boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    trimmed text := rtrim(value, ' ');
    letters text := tsql.folded(trimmed, false, false);
    accented text := tsql.folded(trimmed, false, accents_count);
    exact text := tsql.folded(trimmed, true, accents_count);
    key text := letters;
BEGIN
    IF accented <> letters THEN
        key := key || E'\x01' || accented;
    END IF;
    IF case_counts AND exact <> accented THEN
        key := key || E'\x01' || tsql.small_first(exact);
    END IF;
    RETURN key;
END $$;

CREATE OR REPLACE FUNCTION tsql.ascii_key(value text, case_counts boolean) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN case_counts AND value <> lower(value COLLATE "C") THEN lower(value COLLATE "C") || E'\x01' || tsql.small_first(value)
    ELSE lower(value COLLATE "C") END;

DO $do$
DECLARE
    style record;
    operator record;
BEGIN
    FOR style IN SELECT name, case_counts, accents_count FROM (VALUES ('ci_as', false, true), ('cs_as', true, true),
            ('ci_ai', false, false), ('cs_ai', true, false)) AS s(name, case_counts, accents_count) LOOP
        EXECUTE format($sql$
            CREATE OR REPLACE FUNCTION tsql.key_%1$s(value text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
            RETURN tsql.bytes_of(CASE WHEN octet_length(value) = char_length(value) THEN tsql.ascii_key(rtrim(value, ' '), %2$L)
                ELSE tsql.key_levels(value, %2$L, %3$L) END, -1, false);
            CREATE OR REPLACE FUNCTION tsql.fold_%1$s(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
            RETURN CASE WHEN octet_length(value) <> char_length(value) THEN tsql.folded(value, %2$L, %3$L)
                WHEN %2$L THEN value ELSE lower(value COLLATE "C") END
        $sql$, style.name, style.case_counts, style.accents_count);
        CONTINUE WHEN to_regtype('tsql.' || style.name) IS NOT NULL;
        EXECUTE format($sql$
            CREATE TYPE tsql.%1$s;
            CREATE FUNCTION tsql.%1$s_in(cstring) RETURNS tsql.%1$s LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'textin';
            CREATE FUNCTION tsql.%1$s_out(tsql.%1$s) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'textout';
            CREATE TYPE tsql.%1$s (INPUT = tsql.%1$s_in, OUTPUT = tsql.%1$s_out, LIKE = text);
            CREATE CAST (text AS tsql.%1$s) WITHOUT FUNCTION;
            CREATE CAST (varchar AS tsql.%1$s) WITHOUT FUNCTION;
            CREATE CAST (bpchar AS tsql.%1$s) WITHOUT FUNCTION;
            CREATE CAST (tsql.%1$s AS text) WITHOUT FUNCTION;
            CREATE FUNCTION tsql.unpadded(value tsql.%1$s, modifier int, explicit boolean) RETURNS text
            LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'varchar';
            CREATE FUNCTION tsql.%1$s_order(a tsql.%1$s, b tsql.%1$s) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
            AS 'BEGIN RETURN byteacmp(tsql.key_%1$s(a::text), tsql.key_%1$s(b::text)); END';
            CREATE FUNCTION tsql.%1$s_hash(a tsql.%1$s) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
            AS 'BEGIN RETURN hashbytea(tsql.key_%1$s(a::text)); END';
            CREATE FUNCTION tsql.smaller(a tsql.%1$s, b tsql.%1$s) RETURNS tsql.%1$s LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
            AS 'BEGIN RETURN CASE WHEN tsql.key_%1$s(b::text) < tsql.key_%1$s(a::text) THEN b ELSE a END; END';
            CREATE FUNCTION tsql.larger(a tsql.%1$s, b tsql.%1$s) RETURNS tsql.%1$s LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
            AS 'BEGIN RETURN CASE WHEN tsql.key_%1$s(b::text) > tsql.key_%1$s(a::text) THEN b ELSE a END; END';
            CREATE AGGREGATE tsql.min(tsql.%1$s) (SFUNC = tsql.smaller, STYPE = tsql.%1$s, PARALLEL = SAFE);
            CREATE AGGREGATE tsql.max(tsql.%1$s) (SFUNC = tsql.larger, STYPE = tsql.%1$s, PARALLEL = SAFE);
        $sql$, style.name);
        -- For foreign keys, whose queries use an index only where the planner writes the comparison out.
        EXECUTE format($sql$
            CREATE FUNCTION tsql.%1$s_same(a tsql.%1$s, b tsql.%1$s) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
            RETURN tsql.key_%1$s(a::text) = tsql.key_%1$s(b::text);
            CREATE OPERATOR tsql.=== (LEFTARG = tsql.%1$s, RIGHTARG = tsql.%1$s, FUNCTION = tsql.%1$s_same,
                COMMUTATOR = OPERATOR(tsql.===));
        $sql$, style.name);
        FOR operator IN SELECT * FROM (VALUES ('=', 'eq', '=', '<>'), ('<>', 'ne', '<>', '='), ('<', 'lt', '>', '>='),
                ('<=', 'le', '>=', '>'), ('>', 'gt', '<', '<='), ('>=', 'ge', '<=', '<')) AS o(sign, name, mirrored, negated) LOOP
            EXECUTE format($sql$
                CREATE FUNCTION tsql.%1$s_%2$s(a tsql.%1$s, b tsql.%1$s) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
                AS 'BEGIN RETURN tsql.key_%1$s(a::text) %3$s tsql.key_%1$s(b::text); END';
                CREATE OPERATOR tsql.%3$s (LEFTARG = tsql.%1$s, RIGHTARG = tsql.%1$s, FUNCTION = tsql.%1$s_%2$s,
                    COMMUTATOR = OPERATOR(tsql.%4$s), NEGATOR = OPERATOR(tsql.%5$s) %6$s)
            $sql$, style.name, operator.name, operator.sign, operator.mirrored, operator.negated,
                CASE WHEN operator.sign = '=' THEN ', HASHES, MERGES' ELSE '' END);
        END LOOP;
        EXECUTE format($sql$
            CREATE OPERATOR CLASS tsql.%1$s_order DEFAULT FOR TYPE tsql.%1$s USING btree AS
                OPERATOR 1 tsql.<, OPERATOR 2 tsql.<=, OPERATOR 3 tsql.=, OPERATOR 4 tsql.>=, OPERATOR 5 tsql.>,
                FUNCTION 1 tsql.%1$s_order(tsql.%1$s, tsql.%1$s);
            CREATE OPERATOR CLASS tsql.%1$s_hash DEFAULT FOR TYPE tsql.%1$s USING hash AS
                OPERATOR 1 tsql.=, FUNCTION 1 tsql.%1$s_hash(tsql.%1$s)
        $sql$, style.name);
    END LOOP;
END $do$;
