-- T-SQL's functions and conversions as PostgreSQL functions. Run at every start of the server, so it must be repeatable.
-- Names used by engine/translate; nothing here reads tables except the metadata functions at the end (schema emulator).
-- Functions that can fail raise SQLSTATE MSSQL with the server's own error number in DETAIL.
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

-- Strings to numbers --------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.parse_integer(value text, target text, low bigint, high bigint, source text)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE number numeric;
BEGIN
    IF value ~ '^\s*$' THEN RETURN 0; END IF;
    IF value !~ '^\s*[+-]?\s*\d+\s*$' THEN
        IF target = 'bigint' THEN PERFORM tsql.fail(8114, format('Error converting data type %s to bigint.', source), value); END IF;
        PERFORM tsql.fail(245, format('Conversion failed when converting the %s value ''%%s'' to data type %s.', source, target), value);
    END IF;
    number := regexp_replace(value, '\s', '', 'g')::numeric;
    IF number BETWEEN low AND high THEN RETURN number::bigint; END IF;
    IF target = 'bigint' THEN PERFORM tsql.fail(8115, 'Arithmetic overflow error converting expression to data type bigint.', value); END IF;
    IF target = 'int' THEN PERFORM tsql.fail(248, format('The conversion of the %s value ''%%s'' overflowed an int column.', source), value); END IF;
    PERFORM tsql.fail(244, format('The conversion of the %s value ''%%s'' overflowed an %s column. Use a larger integer column.',
        source, CASE target WHEN 'tinyint' THEN 'INT1' ELSE 'INT2' END), value);
END $$;

CREATE OR REPLACE FUNCTION tsql.to_int(value text, source text) RETURNS int4 LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF value ~ '^[+-]?\d{1,9}$' THEN RETURN value::int4; END IF;
    RETURN tsql.parse_integer(value, 'int', -2147483648, 2147483647, source)::int4;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_bigint(value text, source text) RETURNS int8 LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF value ~ '^[+-]?\d{1,18}$' THEN RETURN value::int8; END IF;
    RETURN tsql.parse_integer(value, 'bigint', -9223372036854775808, 9223372036854775807, source);
END $$;
CREATE OR REPLACE FUNCTION tsql.to_smallint(value text, source text) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.parse_integer(value, 'smallint', -32768, 32767, source)::int2;
CREATE OR REPLACE FUNCTION tsql.to_tinyint(value text, source text) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.parse_integer(value, 'tinyint', 0, 255, source)::int2;
CREATE OR REPLACE FUNCTION tsql.to_bit(value text, source text) RETURNS int2 LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    CASE lower(btrim(value)) WHEN 'true' THEN RETURN 1; WHEN 'false' THEN RETURN 0; WHEN '1' THEN RETURN 1; WHEN '0' THEN RETURN 0; ELSE
        IF value !~ '^\s*([+-]?\d+)?\s*$' THEN
            PERFORM tsql.fail(245, format('Conversion failed when converting the %s value ''%%s'' to data type bit.', source), value);
        END IF;
        RETURN (value ~ '[1-9]')::int::int2;
    END CASE;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_numeric(value text, digits int, scale int, source text) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE number numeric;
BEGIN
    IF value !~ '^\s*[+-]?(\d+\.?\d*|\.\d+)\s*$' THEN
        PERFORM tsql.fail(8114, format('Error converting data type %s to numeric.', source), value);
    END IF;
    number := round(value::numeric, scale);
    IF abs(number) >= 10::numeric ^ (digits - scale) THEN
        PERFORM tsql.fail(8115, format('Arithmetic overflow error converting %s to data type numeric.', source), value, 16, 6);
    END IF;
    RETURN number;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_money(value text, source text) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE plain text := regexp_replace(value, '[\s,$£€¥]', '', 'g');
BEGIN
    IF plain = '' THEN RETURN 0; END IF;
    IF plain !~ '^[+-]?(\d+\.?\d*|\.\d+)$' THEN
        PERFORM tsql.fail(235, 'Cannot convert a char value to money. The char value has incorrect syntax.', value);
    END IF;
    RETURN round(plain::numeric, 4);
END $$;
CREATE OR REPLACE FUNCTION tsql.to_float(value text, source text) RETURNS float8 LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF value ~ '^\s*$' THEN RETURN 0; END IF;
    IF value !~ '^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$' OR NOT pg_input_is_valid(value, 'float8') THEN
        PERFORM tsql.fail(8114, format('Error converting data type %s to float.', source), value);
    END IF;
    RETURN value::float8;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_real(value text, source text) RETURNS float4 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.to_float(value, source)::float4;
CREATE OR REPLACE FUNCTION tsql.read_uniqueidentifier(value text) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE plain text := left(ltrim(value, '{'), 36);
BEGIN
    IF plain !~ '^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$' THEN
        PERFORM tsql.fail(8169, 'Conversion failed when converting from a character string to uniqueidentifier.', value);
    END IF;
    RETURN plain::uuid;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_uniqueidentifier(value text, source text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value ~ '^[0-9A-Fa-f]{8}-[0-9A-Fa-f-]{27}$' AND pg_input_is_valid(value, 'uuid')
        THEN value::uuid ELSE tsql.read_uniqueidentifier(value) END $$;

-- TRY_CAST and TRY_CONVERT: NULL where the plain conversion fails.
DO $$
DECLARE target record;
BEGIN
    FOR target IN SELECT * FROM (VALUES ('int', 'int4'), ('bigint', 'int8'), ('smallint', 'int2'), ('tinyint', 'int2'), ('bit', 'int2'),
                                        ('money', 'numeric'), ('float', 'float8'), ('real', 'float4'), ('uniqueidentifier', 'uuid')) AS t(name, result)
    LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION tsql.try_to_%1$s(value text) RETURNS %2$s LANGUAGE plpgsql IMMUTABLE STRICT AS '
            '$f$ BEGIN RETURN tsql.to_%1$s(value, ''varchar''); EXCEPTION WHEN OTHERS THEN RETURN NULL; END $f$', target.name, target.result);
    END LOOP;
END $$;
CREATE OR REPLACE FUNCTION tsql.try_to_numeric(value text, digits int, scale int) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN RETURN tsql.to_numeric(value, digits, scale, 'varchar'); EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$;

-- Numbers -------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.bit(value numeric) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value = 0 THEN 0 ELSE 1 END::int2;
CREATE OR REPLACE FUNCTION tsql.bit(value int4) RETURNS int2 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value = 0 THEN 0 WHEN value IS NULL THEN NULL ELSE 1 END::int2;
CREATE OR REPLACE FUNCTION tsql.bit(value float8) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value = 0 THEN 0 ELSE 1 END::int2;
CREATE OR REPLACE FUNCTION tsql.tinyint(value numeric) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value BETWEEN 0 AND 255 THEN value::int2
    ELSE tsql.fail(220, 'Arithmetic overflow error for data type tinyint, value = %s.', value::text, 16, 2)::int2 END;
CREATE OR REPLACE FUNCTION tsql.tinyint(value float8) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.tinyint(value::numeric);
CREATE OR REPLACE FUNCTION tsql.tinyint(value int4) RETURNS int2 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value BETWEEN 0 AND 255 OR value IS NULL THEN value::int2
    ELSE tsql.fail(220, 'Arithmetic overflow error for data type tinyint, value = %s.', value::text, 16, 2)::int2 END;
CREATE OR REPLACE FUNCTION tsql.round(value numeric, digits int, cut int) RETURNS numeric LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN cut = 0 THEN pg_catalog.round(value, digits) ELSE pg_catalog.trunc(value, digits) END;
CREATE OR REPLACE FUNCTION tsql.rand(seed int) RETURNS float8 LANGUAGE sql VOLATILE AS $$
    SELECT setseed(((coalesce(seed, 0) % 1000003) / 1000003.0)::float8); SELECT random() $$;
CREATE OR REPLACE FUNCTION tsql.checksum(parts text[]) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtext(array_to_string(parts, E'\x01', E'\x02'));
CREATE OR REPLACE FUNCTION tsql.xor(a int, b int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN b IS NULL THEN a WHEN a IS NULL THEN b ELSE a # b END;
CREATE OR REPLACE AGGREGATE tsql.checksum_agg(int) (SFUNC = tsql.xor, STYPE = int);
CREATE OR REPLACE FUNCTION tsql.smaller(a uuid, b uuid) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN least(a, b);
CREATE OR REPLACE FUNCTION tsql.larger(a uuid, b uuid) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN greatest(a, b);
CREATE OR REPLACE AGGREGATE tsql.min(uuid) (SFUNC = tsql.smaller, STYPE = uuid);
CREATE OR REPLACE AGGREGATE tsql.max(uuid) (SFUNC = tsql.larger, STYPE = uuid);
CREATE OR REPLACE FUNCTION tsql.smaller(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS tsql.datetimeoffset
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN CASE WHEN (b).utc < (a).utc THEN b ELSE a END;
CREATE OR REPLACE FUNCTION tsql.larger(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS tsql.datetimeoffset
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN CASE WHEN (b).utc > (a).utc THEN b ELSE a END;
CREATE OR REPLACE AGGREGATE tsql.min(tsql.datetimeoffset) (SFUNC = tsql.smaller, STYPE = tsql.datetimeoffset);
CREATE OR REPLACE AGGREGATE tsql.max(tsql.datetimeoffset) (SFUNC = tsql.larger, STYPE = tsql.datetimeoffset);
CREATE OR REPLACE FUNCTION tsql.isnumeric(value text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(value ~ '^\s*[+-]?\s*[$£€¥]?\s*(\d[\d,]*\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$', false)::int;

-- Numbers to strings --------------------------------------------------------------------------------------------------

-- Style 0 is C's %.6g with an exponent of three digits; 1 and 2 are scientific; 3 is exact.
CREATE OR REPLACE FUNCTION tsql.float_to_text(value float8, style int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    digits int := CASE style WHEN 0 THEN 6 WHEN 1 THEN 8 WHEN 2 THEN 16 ELSE 17 END;
    exponent int;
    mantissa numeric;
    plain text;
BEGIN
    IF style = 3 THEN RETURN value::text; END IF;
    IF value = 0 THEN exponent := 0; mantissa := 0;
    ELSE
        exponent := floor(log(abs(value)::numeric));
        mantissa := pg_catalog.round(value::numeric / 10::numeric ^ exponent, digits - 1);
        IF abs(mantissa) >= 10 THEN exponent := exponent + 1; mantissa := mantissa / 10; END IF;
    END IF;
    IF style = 0 AND exponent BETWEEN -4 AND 5 THEN
        plain := pg_catalog.round(value::numeric, greatest(digits - 1 - exponent, 0))::text;
        RETURN CASE WHEN strpos(plain, '.') > 0 THEN rtrim(rtrim(plain, '0'), '.') ELSE plain END;
    END IF;
    plain := CASE WHEN style = 0 THEN rtrim(rtrim(mantissa::text, '0'), '.') ELSE pg_catalog.round(mantissa, digits - 1)::text END;
    RETURN plain || 'e' || CASE WHEN exponent < 0 THEN '-' ELSE '+' END || lpad(abs(exponent)::text, 3, '0');
END $$;
CREATE OR REPLACE FUNCTION tsql.money_to_text(value numeric, style int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN style = 1 THEN ltrim(to_char(pg_catalog.round(value, 2), 'FM999,999,999,999,990.00'))
    ELSE pg_catalog.round(value, CASE WHEN style IN (2, 126) THEN 4 ELSE 2 END)::text END;
CREATE OR REPLACE FUNCTION tsql.str(value float8, length int, decimals int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN char_length(whole) > length THEN repeat('*', length)
           ELSE lpad(CASE WHEN char_length(full_text) > length
                THEN pg_catalog.round(value::numeric, greatest(length - char_length(whole) - 1, 0))::text ELSE full_text END, length) END
    FROM (SELECT pg_catalog.round(value::numeric, 0)::text AS whole,
                 pg_catalog.round(value::numeric, least(decimals, 16))::text AS full_text) v $$;

-- Strings -------------------------------------------------------------------------------------------------------------

-- SQL Server counts UTF-16 code units.
CREATE OR REPLACE FUNCTION tsql.utf16_length(value text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(value) = char_length(value) THEN char_length(value)
    ELSE char_length(value) + regexp_count(value, '[\U00010000-\U0010FFFF]') END;
CREATE OR REPLACE FUNCTION tsql.len(value text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN tsql.utf16_length(pg_catalog.rtrim(value, ' '));
CREATE OR REPLACE FUNCTION tsql.substring(value text, start int, length int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length < 0 THEN tsql.fail(537, 'Invalid length parameter passed to the LEFT or SUBSTRING function.', length::text)
    ELSE pg_catalog.substr(value, start, length) END;
CREATE OR REPLACE FUNCTION tsql.substring_binary(value bytea, start int, length int) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length < 0
    THEN tsql.fail(537, 'Invalid length parameter passed to the LEFT or SUBSTRING function.', length::text)::bytea
    ELSE pg_catalog.substr(value, greatest(start, 1), greatest(length + least(start - 1, 0), 0)) END;
CREATE OR REPLACE FUNCTION tsql.left(value text, length int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length < 0 THEN tsql.fail(537, 'Invalid length parameter passed to the LEFT or SUBSTRING function.', length::text)
    ELSE pg_catalog.left(value, length) END;
CREATE OR REPLACE FUNCTION tsql.right(value text, length int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length < 0 THEN tsql.fail(536, 'Invalid length parameter passed to the RIGHT function.', length::text)
    WHEN length = 0 THEN '' ELSE pg_catalog.right(value, length) END;
CREATE OR REPLACE FUNCTION tsql.charindex(part text, value text, start int DEFAULT 1) RETURNS int
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN part = '' THEN 0 WHEN start <= 1 THEN strpos(value, part)
        ELSE CASE WHEN found > 0 THEN found + start - 1 ELSE 0 END END
    FROM (SELECT strpos(pg_catalog.substr(value, greatest(start, 1)), part) AS found) f $$;
CREATE OR REPLACE FUNCTION tsql.replace(value text, old text, new text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN old = '' THEN value ELSE pg_catalog.replace(value, old, new) END;
CREATE OR REPLACE FUNCTION tsql.replicate(value text, count int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN count < 0 THEN NULL ELSE repeat(value, count) END;
CREATE OR REPLACE FUNCTION tsql.space(count int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN count < 0 THEN NULL ELSE repeat(' ', count) END;
CREATE OR REPLACE FUNCTION tsql.stuff(value text, start int, length int, new text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN start <= 0 OR length < 0 OR start > char_length(value) THEN NULL
    ELSE pg_catalog.left(value, start - 1) || coalesce(new, '') || pg_catalog.substr(value, start + length) END;
CREATE OR REPLACE FUNCTION tsql.quotename(value text, quote text DEFAULT '[') RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN char_length(value) > 128 THEN NULL
    WHEN quote IN ('[', ']') THEN '[' || pg_catalog.replace(value, ']', ']]') || ']'
    WHEN quote IN ('''', '"', '`') THEN quote || pg_catalog.replace(value, quote, quote || quote) || quote
    WHEN quote IN ('(', ')') THEN '(' || pg_catalog.replace(value, ')', '))') || ')'
    WHEN quote IN ('<', '>') THEN '<' || pg_catalog.replace(value, '>', '>>') || '>'
    WHEN quote IN ('{', '}') THEN '{' || pg_catalog.replace(value, '}', '}}') || '}' END;
CREATE OR REPLACE FUNCTION tsql.ascii(value text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN value = '' THEN NULL ELSE get_byte(tsql.text_to_binary(pg_catalog.left(value, 1), 0, false), 0) END $$;
CREATE OR REPLACE FUNCTION tsql.unicode(value text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value = '' THEN NULL WHEN pg_catalog.ascii(value) > 65535 THEN 55296 + ((pg_catalog.ascii(value) - 65536) >> 10)
    ELSE pg_catalog.ascii(value) END;
CREATE OR REPLACE FUNCTION tsql.char(code int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN code BETWEEN 1 AND 255 THEN tsql.binary_to_text(set_byte('\x00'::bytea, 0, code), 0, false) END $$;
CREATE OR REPLACE FUNCTION tsql.nchar(code int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN code BETWEEN 1 AND 55295 OR code BETWEEN 57344 AND 65535 THEN chr(code) END;
CREATE OR REPLACE FUNCTION tsql.string_escape(value text, kind text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN lower(kind) = 'json' THEN pg_catalog.replace(btrim(to_json(value)::text, '"'), '/', '\/') END;
CREATE OR REPLACE FUNCTION tsql.string_split(value text, separator text, ordinal int DEFAULT 0)
RETURNS TABLE (value_ text, ordinal_ bigint) LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT part, number FROM unnest(string_to_array($1, $2)) WITH ORDINALITY AS p(part, number) $$;
CREATE OR REPLACE FUNCTION tsql.generate_series(first bigint, last bigint, step bigint DEFAULT 1) RETURNS SETOF bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT pg_catalog.generate_series(first, last, step) $$;
CREATE OR REPLACE FUNCTION tsql.isjson(value text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (value IS JSON OBJECT OR value IS JSON ARRAY)::int;
CREATE OR REPLACE FUNCTION tsql.json_value(value text, path text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_typeof(found) IN ('object', 'array') THEN NULL ELSE found #>> '{}' END
    FROM (SELECT jsonb_path_query_first(value::jsonb, path::jsonpath) AS found) f $$;

-- The parts of a one- to four-part name, innermost first; brackets and quotes removed.
CREATE OR REPLACE FUNCTION tsql.name_parts(name text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT array_agg(CASE WHEN m[1] IS NOT NULL THEN pg_catalog.replace(m[1], ']]', ']')
                          WHEN m[2] IS NOT NULL THEN pg_catalog.replace(m[2], '""', '"') ELSE btrim(coalesce(m[3], '')) END ORDER BY n DESC)
    FROM regexp_matches(name || '.', '\s*(?:\[((?:[^]]|\]\])*)\]|"((?:[^"]|"")*)"|([^."[]*))\s*\.', 'g') WITH ORDINALITY AS p(m, n) $$;
CREATE OR REPLACE FUNCTION tsql.parsename(name text, part int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN cardinality(parts) <= 4 THEN nullif(parts[part], '') END FROM (SELECT tsql.name_parts(name) AS parts) p $$;

-- LIKE with [classes] as a regular expression.
CREATE OR REPLACE FUNCTION tsql.like_regex(pattern text, escape text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    regex text := '';
    position int := 1;
    mark text;
    ending int;
BEGIN
    WHILE position <= char_length(pattern) LOOP
        mark := pg_catalog.substr(pattern, position, 1);
        IF mark = escape AND position < char_length(pattern) THEN
            position := position + 1;
            regex := regex || regexp_replace(pg_catalog.substr(pattern, position, 1), '([^\w\s])', '\\\1');
        ELSIF mark = '%' THEN regex := regex || '.*';
        ELSIF mark = '_' THEN regex := regex || '.';
        ELSIF mark = '[' THEN
            ending := strpos(pg_catalog.substr(pattern, position + 2), ']');
            IF ending = 0 THEN RETURN '(?!)'; END IF;
            regex := regex || '[' || regexp_replace(pg_catalog.substr(pattern, position + 1, ending), '([\\\[])', '\\\1', 'g') || ']';
            position := position + ending + 1;
        ELSE regex := regex || regexp_replace(mark, '([^\w\s])', '\\\1');
        END IF;
        position := position + 1;
    END LOOP;
    RETURN regex;
END $$;
CREATE OR REPLACE FUNCTION tsql.like(value text, pattern text, escape text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN strpos(pattern, '[') = 0 THEN value LIKE pattern ESCAPE coalesce(escape, '')
    ELSE value ~ ('^' || tsql.like_regex(pattern, escape) || '$') END;
CREATE OR REPLACE FUNCTION tsql.patindex(pattern text, value text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT regexp_instr(value, CASE WHEN pattern LIKE '\%%' THEN '' ELSE '^' END || tsql.like_regex(middle, NULL)
        || CASE WHEN pattern LIKE '%\%' THEN '' ELSE '$' END)
    FROM (SELECT regexp_replace(regexp_replace(pattern, '^%', ''), '%$', '') AS middle) p $$;

-- Binary --------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.to_utf16(value text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    bytes bytea := ''; mark text; code int;
BEGIN
    IF octet_length(value) = char_length(value) THEN
        RETURN decode(regexp_replace(encode(convert_to(value, 'UTF8'), 'hex'), '(..)', '\100', 'g'), 'hex');
    END IF;
    FOREACH mark IN ARRAY regexp_split_to_array(value, '') LOOP
        code := pg_catalog.ascii(mark);
        IF code > 65535 THEN
            bytes := bytes || tsql.little_endian(55296 + ((code - 65536) >> 10)) || tsql.little_endian(56320 + ((code - 65536) & 1023));
        ELSE bytes := bytes || tsql.little_endian(code);
        END IF;
    END LOOP;
    RETURN bytes;
END $$;
CREATE OR REPLACE FUNCTION tsql.little_endian(code int) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN set_byte(set_byte('\x0000'::bytea, 0, code & 255), 1, code >> 8);
CREATE OR REPLACE FUNCTION tsql.from_utf16(value bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    result text := ''; code int; high int := 0;
BEGIN
    FOR i IN 0 .. octet_length(value) / 2 - 1 LOOP
        code := get_byte(value, 2 * i) + 256 * get_byte(value, 2 * i + 1);
        IF code = 0 THEN PERFORM tsql.fail(49999, 'sqlserver_emulator does not support the character U+0000 in a string. See docs/emulator.md.', ''); END IF;
        IF code BETWEEN 55296 AND 56319 THEN high := code;
        ELSIF code BETWEEN 56320 AND 57343 THEN result := result || chr(65536 + ((high - 55296) << 10) + code - 56320);
        ELSE result := result || chr(code);
        END IF;
    END LOOP;
    RETURN result;
END $$;
CREATE OR REPLACE FUNCTION tsql.text_to_binary(value text, style int, is_national boolean) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE digits text := value;
BEGIN
    IF style IN (1, 2) THEN
        IF style = 1 THEN
            IF value !~* '^0x' THEN PERFORM tsql.fail(8114, 'Error converting data type varchar to varbinary.', value, 16, 5); END IF;
            digits := pg_catalog.substr(value, 3);
        END IF;
        IF digits !~* '^([0-9a-f]{2})*$' THEN PERFORM tsql.fail(8114, 'Error converting data type varchar to varbinary.', value, 16, 5); END IF;
        RETURN decode(digits, 'hex');
    END IF;
    IF is_national THEN RETURN tsql.to_utf16(value); END IF;
    IF octet_length(value) = char_length(value) THEN RETURN convert_to(value, 'UTF8'); END IF;
    BEGIN
        RETURN convert_to(value, 'WIN1252');
    EXCEPTION WHEN untranslatable_character THEN
        RETURN convert_to(regexp_replace(value, '[^\x01-\xff€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]', '?', 'g'), 'WIN1252');
    END;
END $$;
CREATE OR REPLACE FUNCTION tsql.try_text_to_binary(value text, style int, is_national boolean) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN RETURN tsql.text_to_binary(value, style, is_national); EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$;
CREATE OR REPLACE FUNCTION tsql.refuse_text_to_binary(value text, source text, target text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value IS NOT NULL THEN tsql.fail(257, format(
    'Implicit conversion from data type %s to %s is not allowed. Use the CONVERT function to run this query.', source, target), '', 16, 3)::bytea END;
CREATE OR REPLACE FUNCTION tsql.binary_to_text(value bytea, style int, is_national boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF style = 1 THEN RETURN '0x' || upper(encode(value, 'hex')); END IF;
    IF style = 2 THEN RETURN upper(encode(value, 'hex')); END IF;
    IF is_national THEN RETURN tsql.from_utf16(value); END IF;
    IF position('\x00'::bytea IN value) > 0 THEN
        PERFORM tsql.fail(49999, 'sqlserver_emulator does not support the character U+0000 in a string. See docs/emulator.md.', '');
    END IF;
    BEGIN
        RETURN convert_from(value, 'WIN1252');
    EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
        RETURN convert_from(value, 'LATIN1');
    END;
END $$;
CREATE OR REPLACE FUNCTION tsql.fit_binary(value bytea, length int, fixed boolean) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN octet_length(value) > length THEN pg_catalog.substr(value, 1, length)
    WHEN fixed AND octet_length(value) < length THEN value || decode(repeat('00', length - octet_length(value)), 'hex') ELSE value END;
CREATE OR REPLACE FUNCTION tsql.pad_binary(value bytea, length int) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(value) < length THEN value || decode(repeat('00', length - octet_length(value)), 'hex') ELSE value END;
CREATE OR REPLACE FUNCTION tsql.assign_binary(value bytea, length int, fixed boolean) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF octet_length(value) > length THEN
        RAISE EXCEPTION USING ERRCODE = '22001', MESSAGE = format('value too long for type binary(%s)', length);
    END IF;
    RETURN tsql.fit_binary(value, length, fixed);
END $$;
CREATE OR REPLACE FUNCTION tsql.integer_to_binary(value bigint, size int, length int, fixed boolean) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN length < size THEN pg_catalog.substr(bytes, size - length + 1)
        WHEN fixed THEN decode(repeat('00', length - size), 'hex') || bytes ELSE bytes END
    FROM (SELECT pg_catalog.substr(int8send(value), 9 - size) AS bytes) b $$;
CREATE OR REPLACE FUNCTION tsql.binary_to_integer(value bytea, size int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    number bigint := 0;
    bytes bytea := CASE WHEN octet_length(value) > size THEN pg_catalog.substr(value, octet_length(value) - size + 1) ELSE value END;
BEGIN
    FOR i IN 0 .. octet_length(bytes) - 1 LOOP number := (number << 8) | get_byte(bytes, i); END LOOP;
    IF octet_length(bytes) = size AND size IN (2, 4) AND get_byte(bytes, 0) > 127 THEN number := number - (1::bigint << (8 * size)); END IF;
    RETURN number;
END $$;
CREATE OR REPLACE FUNCTION tsql.guid_to_binary(value uuid) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT pg_catalog.substr(b, 4, 1) || pg_catalog.substr(b, 3, 1) || pg_catalog.substr(b, 2, 1) || pg_catalog.substr(b, 1, 1)
        || pg_catalog.substr(b, 6, 1) || pg_catalog.substr(b, 5, 1) || pg_catalog.substr(b, 8, 1) || pg_catalog.substr(b, 7, 1)
        || pg_catalog.substr(b, 9) FROM (SELECT uuid_send(value) AS b) v $$;
CREATE OR REPLACE FUNCTION tsql.binary_to_guid(value bytea) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT encode(tsql.guid_to_binary(encode(tsql.fit_binary(value, 16, true), 'hex')::uuid), 'hex')::uuid $$;
CREATE OR REPLACE FUNCTION tsql.hashbytes(algorithm text, data bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    CASE upper(algorithm)
        WHEN 'MD5' THEN RETURN decode(md5(data), 'hex');
        WHEN 'SHA2_256' THEN RETURN sha256(data);
        WHEN 'SHA2_512' THEN RETURN sha512(data);
        WHEN 'SHA', 'SHA1', 'MD2', 'MD4' THEN
            PERFORM tsql.fail(49999, 'sqlserver_emulator does not support HASHBYTES with %s. See docs/emulator.md.', algorithm);
        ELSE RETURN NULL;
    END CASE;
END $$;

-- Dates: reading ------------------------------------------------------------------------------------------------------

-- A string as a date and time by CONVERT's style, NULL when it is none. Digits beyond the microsecond are cut.
CREATE OR REPLACE FUNCTION tsql.parse_timestamp(value text, style int) RETURNS timestamp LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
    plain text := btrim(value);
    parts text[];
BEGIN
    IF plain ~ '^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?$' THEN
        RETURN CASE WHEN pg_input_is_valid(plain, 'timestamp') THEN plain::timestamp END;
    END IF;
    IF plain = '' THEN RETURN timestamp '1900-01-01'; END IF;
    IF plain !~ '\d' OR plain ~* '(infinity|bc\M)' THEN RETURN NULL; END IF;
    plain := regexp_replace(plain, '(\.\d{6})\d+', '\1');
    plain := regexp_replace(plain, '(:\d\d):(\d{1,3})(?=\s*([AP]M)?$)', '\1.\2', 'i');
    plain := regexp_replace(plain, '(\d)\s*([AP]M)$', '\1 \2', 'i');
    plain := regexp_replace(plain, '(Z|\s*[+-]\d\d:\d\d)$', '');
    IF plain ~* '^\d{1,2}(:\d\d){0,2}(\.\d+)?( [AP]M)?$' AND plain ~ '[:AaPp]' THEN
        IF plain !~ ':' THEN plain := regexp_replace(plain, '^(\d+)', '\1:00'); END IF;
        RETURN CASE WHEN pg_input_is_valid(plain, 'time') THEN date '1900-01-01' + plain::time END;
    END IF;
    parts := regexp_match(plain, '^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d{2})(\s.*)?$');
    IF parts IS NOT NULL THEN
        IF length(parts[3]) = 2 THEN parts[3] := CASE WHEN parts[3] < '50' THEN '20' ELSE '19' END || parts[3]; END IF;
        IF style % 100 IN (3, 4, 5, 13) THEN parts := ARRAY[parts[2], parts[1], parts[3], parts[4]]; END IF;
        plain := format('%s-%s-%s%s', parts[3], lpad(parts[1], 2, '0'), lpad(parts[2], 2, '0'), coalesce(parts[4], ''));
    ELSIF plain ~ '^\d{4}$' THEN plain := plain || '-01-01';
    ELSIF plain ~ '^\d{6}$' THEN
        plain := CASE WHEN plain < '50' THEN '20' ELSE '19' END || plain;
    ELSE plain := regexp_replace(plain, '^(\d{4})[/.](\d{1,2})[/.](\d{1,2})', '\1-\2-\3');
    END IF;
    RETURN CASE WHEN pg_input_is_valid(plain, 'timestamp') THEN plain::timestamp END;
END $$;

CREATE OR REPLACE FUNCTION tsql.fail_date(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN tsql.fail(241, 'Conversion failed when converting date and/or time from character string.', value);
-- The usual form of a date is read in place (the functions below are inlined); the rest goes to parse_timestamp.
CREATE OR REPLACE FUNCTION tsql.read_datetime2(value text, style int) RETURNS timestamp LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE moment timestamp := tsql.parse_timestamp(value, style);
BEGIN
    IF moment IS NULL THEN PERFORM tsql.fail_date(value); END IF;
    RETURN moment;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_datetime2(value text, style int) RETURNS timestamp LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value ~ '^\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,7})?)?$' AND pg_input_is_valid(value, 'timestamp')
        THEN pg_catalog.left(value, 26)::timestamp ELSE tsql.read_datetime2(value, style) END $$;
CREATE OR REPLACE FUNCTION tsql.to_date(value text, style int) RETURNS date LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value ~ '^\d{4}-\d\d-\d\d$' AND pg_input_is_valid(value, 'date')
        THEN value::date ELSE tsql.read_datetime2(value, style)::date END $$;
CREATE OR REPLACE FUNCTION tsql.to_time(value text, style int) RETURNS time LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value ~ '^\d\d:\d\d:\d\d(\.\d{1,7})?$' AND pg_input_is_valid(value, 'time')
        THEN pg_catalog.left(value, 15)::time ELSE tsql.read_datetime2(value, style)::time END $$;
CREATE OR REPLACE FUNCTION tsql.to_datetime(value text, style int) RETURNS timestamp LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE moment timestamp := tsql.parse_timestamp(value, style);
BEGIN
    IF moment IS NULL AND value !~ '^\s*\d{4}-\d\d-\d\d' THEN PERFORM tsql.fail_date(value); END IF;
    IF moment IS NULL OR moment < timestamp '1753-01-01' THEN
        PERFORM tsql.fail(242, 'The conversion of a varchar data type to a datetime data type resulted in an out-of-range value.', value, 16, 3);
    END IF;
    RETURN tsql.round_datetime(moment);
END $$;
CREATE OR REPLACE FUNCTION tsql.to_smalldatetime(value text, style int) RETURNS timestamp LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT tsql.round_smalldatetime(tsql.to_datetime(value, style)) $$;
CREATE OR REPLACE FUNCTION tsql.to_datetimeoffset(value text, style int) RETURNS tsql.datetimeoffset
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE parts text[] := regexp_match(value, '^(.*\S)\s*([+-]\d\d:\d\d|Z)\s*$');
BEGIN
    IF parts IS NULL THEN RETURN tsql.datetimeoffset(tsql.to_datetime2(value, style), 0); END IF;
    RETURN tsql.datetimeoffset(tsql.to_datetime2(parts[1], style), tsql.offset_from_text(parts[2]));
END $$;
DO $$
DECLARE target record;
BEGIN
    FOR target IN SELECT * FROM (VALUES ('datetime2', 'timestamp'), ('datetime', 'timestamp'), ('smalldatetime', 'timestamp'), ('date', 'date'),
                                        ('time', 'time'), ('datetimeoffset', 'tsql.datetimeoffset')) AS t(name, result)
    LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION tsql.try_to_%1$s(value text, style int) RETURNS %2$s LANGUAGE plpgsql STABLE STRICT AS '
            '$f$ BEGIN RETURN tsql.to_%1$s(value, style); EXCEPTION WHEN OTHERS THEN RETURN NULL; END $f$', target.name, target.result);
    END LOOP;
END $$;
CREATE OR REPLACE FUNCTION tsql.isdate(value text) RETURNS int LANGUAGE sql STABLE PARALLEL SAFE
RETURN (tsql.try_to_datetime(value, 0) IS NOT NULL)::int;

-- Dates: rounding and numbers -----------------------------------------------------------------------------------------

-- datetime counts in ticks of 1/300 second, shown as 0, 3 or 7 milliseconds.
CREATE OR REPLACE FUNCTION tsql.round_datetime(value timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN date_trunc('minute', value)
    + pg_catalog.round(pg_catalog.round(extract(microseconds FROM value) * 3 / 10000) * 10 / 3) * interval '1 millisecond';
CREATE OR REPLACE FUNCTION tsql.round_smalldatetime(value timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN date_trunc('minute', value + interval '30 seconds 1 microsecond' - interval '1 microsecond');
CREATE OR REPLACE FUNCTION tsql.datetime_to_float(value timestamp) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (extract(epoch FROM value - timestamp '1900-01-01') / 86400)::float8;
CREATE OR REPLACE FUNCTION tsql.float_to_datetime(value float8) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.round_datetime(timestamp '1900-01-01' + value * interval '1 day');

-- Dates: datetimeoffset -----------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.datetimeoffset(local timestamp, minutes int) RETURNS tsql.datetimeoffset LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ROW(local - minutes * interval '1 minute', minutes)::tsql.datetimeoffset;
CREATE OR REPLACE FUNCTION tsql.local_time(value tsql.datetimeoffset) RETURNS timestamp LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (value).utc + (value).offset_minutes * interval '1 minute';
CREATE OR REPLACE FUNCTION tsql.utc_time(value tsql.datetimeoffset) RETURNS timestamp LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (value).utc;
CREATE OR REPLACE FUNCTION tsql.offset_minutes(value tsql.datetimeoffset) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (value).offset_minutes::int;
CREATE OR REPLACE FUNCTION tsql.switchoffset(value tsql.datetimeoffset, minutes int) RETURNS tsql.datetimeoffset LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ROW((value).utc, minutes)::tsql.datetimeoffset;
CREATE OR REPLACE FUNCTION tsql.round_datetimeoffset(value tsql.datetimeoffset, digits int) RETURNS tsql.datetimeoffset
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ROW(date_trunc('minute', (value).utc) + pg_catalog.round(extract(seconds FROM (value).utc), digits) * interval '1 second', (value).offset_minutes)::tsql.datetimeoffset;
CREATE OR REPLACE FUNCTION tsql.offset_from_text(value text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value = 'Z' THEN 0 WHEN value ~ '^[+-]\d\d:\d\d$'
    THEN (pg_catalog.substr(value, 2, 2)::int * 60 + pg_catalog.substr(value, 5, 2)::int) * CASE WHEN value LIKE '-%' THEN -1 ELSE 1 END
    ELSE tsql.fail(9812, 'The timezone provided to builtin function todatetimeoffset is invalid.', value)::int END;
CREATE OR REPLACE FUNCTION tsql.offset_text(minutes int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN minutes < 0 THEN '-' ELSE '+' END || lpad((abs(minutes) / 60)::text, 2, '0') || ':' || lpad((abs(minutes) % 60)::text, 2, '0');
CREATE OR REPLACE FUNCTION tsql.sysdatetimeoffset() RETURNS tsql.datetimeoffset LANGUAGE sql STABLE PARALLEL SAFE
RETURN ROW(emulator.utc_now(), extract(timezone FROM statement_timestamp()) / 60)::tsql.datetimeoffset;
-- Windows' names of a few zones; PostgreSQL's own names work too.
CREATE OR REPLACE FUNCTION tsql.zone(name text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE lower(name)
    WHEN 'utc' THEN 'UTC' WHEN 'w. europe standard time' THEN 'Europe/Berlin' WHEN 'central european standard time' THEN 'Europe/Warsaw'
    WHEN 'central europe standard time' THEN 'Europe/Budapest' WHEN 'romance standard time' THEN 'Europe/Paris'
    WHEN 'gmt standard time' THEN 'Europe/London' WHEN 'eastern standard time' THEN 'America/New_York'
    WHEN 'central standard time' THEN 'America/Chicago' WHEN 'mountain standard time' THEN 'America/Denver'
    WHEN 'pacific standard time' THEN 'America/Los_Angeles' WHEN 'tokyo standard time' THEN 'Asia/Tokyo'
    WHEN 'china standard time' THEN 'Asia/Shanghai' WHEN 'india standard time' THEN 'Asia/Kolkata'
    WHEN 'e. south america standard time' THEN 'America/Sao_Paulo' WHEN 'aus eastern standard time' THEN 'Australia/Sydney'
    ELSE name END;
CREATE OR REPLACE FUNCTION tsql.zone_offset(utc timestamp, zone text) RETURNS int LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN extract(epoch FROM (utc AT TIME ZONE 'UTC') AT TIME ZONE tsql.zone(zone) - utc)::int / 60;
EXCEPTION WHEN invalid_parameter_value THEN
    PERFORM tsql.fail(9820, 'The time zone parameter ''%s'' provided to AT TIME ZONE clause is invalid.', zone);
END $$;
CREATE OR REPLACE FUNCTION tsql.move_to_zone(value tsql.datetimeoffset, zone text) RETURNS tsql.datetimeoffset LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN ROW((value).utc, tsql.zone_offset((value).utc, zone))::tsql.datetimeoffset;
CREATE OR REPLACE FUNCTION tsql.in_zone(local timestamp, zone text) RETURNS tsql.datetimeoffset LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE utc timestamp;
BEGIN
    PERFORM tsql.zone_offset(local, zone);
    utc := (local AT TIME ZONE tsql.zone(zone)) AT TIME ZONE 'UTC';
    RETURN ROW(utc, extract(epoch FROM local - utc)::int / 60)::tsql.datetimeoffset;
END $$;
CREATE OR REPLACE FUNCTION tsql.current_timezone_id() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN current_setting('TimeZone') IN ('UTC', 'Etc/UTC', 'GMT') THEN 'UTC' ELSE current_setting('TimeZone') END;
CREATE OR REPLACE FUNCTION tsql.current_timezone() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN '(UTC' || CASE WHEN extract(timezone FROM now()) = 0 THEN '' ELSE tsql.offset_text((extract(timezone FROM now()) / 60)::int) END || ') '
    || CASE WHEN tsql.current_timezone_id() = 'UTC' THEN 'Coordinated Universal Time' ELSE tsql.current_timezone_id() END;

-- Dates: arithmetic and parts -----------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.dateadd(part text, amount bigint, value timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part
    WHEN 'day' THEN value + amount * interval '1 day' WHEN 'dayofyear' THEN value + amount * interval '1 day'
    WHEN 'weekday' THEN value + amount * interval '1 day' WHEN 'week' THEN value + amount * interval '7 days'
    WHEN 'month' THEN value + amount * interval '1 month' WHEN 'quarter' THEN value + amount * interval '3 months'
    WHEN 'year' THEN value + amount * interval '1 year' WHEN 'hour' THEN value + amount * interval '1 hour'
    WHEN 'minute' THEN value + amount * interval '1 minute' WHEN 'second' THEN value + amount * interval '1 second'
    WHEN 'millisecond' THEN value + amount * interval '1 millisecond' WHEN 'microsecond' THEN value + amount * interval '1 microsecond'
    WHEN 'nanosecond' THEN value + amount / 1000 * interval '1 microsecond' END;
CREATE OR REPLACE FUNCTION tsql.dateadd_offset(part text, amount bigint, value tsql.datetimeoffset) RETURNS tsql.datetimeoffset
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN tsql.datetimeoffset(tsql.dateadd(part, amount, tsql.local_time(value)), (value).offset_minutes);
-- DATEDIFF counts boundaries crossed; weeks begin on Sunday whatever DATEFIRST is.
CREATE OR REPLACE FUNCTION tsql.unit_number(part text, value timestamp) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part
    WHEN 'day' THEN (value::date - date '1900-01-01')::bigint WHEN 'dayofyear' THEN (value::date - date '1900-01-01')::bigint
    WHEN 'weekday' THEN (value::date - date '1900-01-01')::bigint
    WHEN 'week' THEN floor((value::date - date '1899-12-31') / 7.0)::bigint
    WHEN 'iso_week' THEN floor((value::date - date '1899-12-31') / 7.0)::bigint
    WHEN 'month' THEN (extract(year FROM value) * 12 + extract(month FROM value))::bigint
    WHEN 'quarter' THEN (extract(year FROM value) * 4 + extract(quarter FROM value))::bigint
    WHEN 'year' THEN extract(year FROM value)::bigint
    WHEN 'hour' THEN floor(extract(epoch FROM value) / 3600)::bigint WHEN 'minute' THEN floor(extract(epoch FROM value) / 60)::bigint
    WHEN 'second' THEN floor(extract(epoch FROM value))::bigint WHEN 'millisecond' THEN floor(extract(epoch FROM value) * 1000)::bigint
    WHEN 'microsecond' THEN (extract(epoch FROM value) * 1000000)::bigint END;
CREATE OR REPLACE FUNCTION tsql.datediff(part text, first timestamp, last timestamp) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN part = 'nanosecond' THEN (tsql.unit_number('microsecond', last) - tsql.unit_number('microsecond', first)) * 1000
    ELSE tsql.unit_number(part, last) - tsql.unit_number(part, first) END;
CREATE OR REPLACE FUNCTION tsql.datepart(part text, value timestamp) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part
    WHEN 'year' THEN extract(year FROM value) WHEN 'quarter' THEN extract(quarter FROM value) WHEN 'month' THEN extract(month FROM value)
    WHEN 'day' THEN extract(day FROM value) WHEN 'dayofyear' THEN extract(doy FROM value)
    WHEN 'weekday' THEN extract(dow FROM value) + 1 WHEN 'iso_week' THEN extract(week FROM value)
    WHEN 'week' THEN floor((extract(doy FROM value) - 1 + extract(dow FROM date_trunc('year', value))) / 7) + 1
    WHEN 'hour' THEN extract(hour FROM value) WHEN 'minute' THEN extract(minute FROM value)
    WHEN 'second' THEN floor(extract(second FROM value)) WHEN 'millisecond' THEN floor(mod(extract(microseconds FROM value), 1000000) / 1000)
    WHEN 'microsecond' THEN mod(extract(microseconds FROM value), 1000000)
    WHEN 'nanosecond' THEN mod(extract(microseconds FROM value), 1000000) * 1000 END::int;
CREATE OR REPLACE FUNCTION tsql.datename(part text, value timestamp) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part WHEN 'month' THEN to_char(value, 'FMMonth') WHEN 'weekday' THEN to_char(value, 'FMDay') ELSE tsql.datepart(part, value)::text END;
CREATE OR REPLACE FUNCTION tsql.datetrunc(part text, value timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part WHEN 'dayofyear' THEN date_trunc('day', value) WHEN 'iso_week' THEN date_trunc('week', value)
    WHEN 'week' THEN date_trunc('day', value) - extract(dow FROM value) * interval '1 day'
    WHEN 'millisecond' THEN date_trunc('milliseconds', value) WHEN 'microsecond' THEN value ELSE date_trunc(part, value) END;
CREATE OR REPLACE FUNCTION tsql.eomonth(value timestamp, months int) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (date_trunc('month', value) + (coalesce(months, 0) + 1) * interval '1 month' - interval '1 day')::date;
CREATE OR REPLACE FUNCTION tsql.made_date(year int, month int, day int) RETURNS date LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN RETURN make_date(year, month, day);
EXCEPTION WHEN datetime_field_overflow THEN
    PERFORM tsql.fail(289, 'Cannot construct data type date, some of the arguments have values which are not valid.', '');
END $$;
CREATE OR REPLACE FUNCTION tsql.datefromparts(year int, month int, day int) RETURNS date LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.made_date(year, month, day);
CREATE OR REPLACE FUNCTION tsql.timefromparts(hour int, minute int, second int, fraction int, scale int) RETURNS time LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN make_time(hour, minute, second::float8) + (fraction * 1000000::numeric / 10::numeric ^ scale) * interval '1 microsecond';
CREATE OR REPLACE FUNCTION tsql.datetime2fromparts(year int, month int, day int, hour int, minute int, second int, fraction int, scale int)
RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.made_date(year, month, day) + tsql.timefromparts(hour, minute, second, fraction, scale);
CREATE OR REPLACE FUNCTION tsql.datetimefromparts(year int, month int, day int, hour int, minute int, second int, millisecond int)
RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.round_datetime(tsql.datetime2fromparts(year, month, day, hour, minute, second, millisecond, 3));
CREATE OR REPLACE FUNCTION tsql.smalldatetimefromparts(year int, month int, day int, hour int, minute int)
RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN tsql.datetime2fromparts(year, month, day, hour, minute, 0, 0, 0);
CREATE OR REPLACE FUNCTION tsql.datetimeoffsetfromparts(
    year int, month int, day int, hour int, minute int, second int, fraction int, hour_offset int, minute_offset int, scale int)
RETURNS tsql.datetimeoffset LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.datetimeoffset(tsql.datetime2fromparts(year, month, day, hour, minute, second, fraction, scale), hour_offset * 60 + minute_offset);

-- Dates: writing ------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.fraction(value timestamp, digits int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN pg_catalog.left(to_char(value, 'US') || '0', digits);
CREATE OR REPLACE FUNCTION tsql.point_fraction(value timestamp, digits int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN digits = 0 THEN '' ELSE '.' || tsql.fraction(value, digits) END;
CREATE OR REPLACE FUNCTION tsql.hour12(value timestamp) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN lpad(to_char(value, 'FMHH12'), 2);
CREATE OR REPLACE FUNCTION tsql.day_text(value timestamp) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN lpad(to_char(value, 'FMDD'), 2);
CREATE OR REPLACE FUNCTION tsql.timestamp_to_text(value timestamp, style int, digits int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    -- datetime shows milliseconds behind a colon where datetime2 has its fraction behind a point
    separator text := CASE WHEN digits = 3 THEN ':' ELSE '.' END;
    year text := CASE WHEN style < 20 AND style NOT IN (0, 9, 13) THEN 'YY' ELSE 'YYYY' END;
    fraction text := CASE WHEN digits = 0 THEN '' ELSE separator || tsql.fraction(value, digits) END;
BEGIN
    CASE style
        WHEN 120, 20 THEN RETURN to_char(value, 'YYYY-MM-DD HH24:MI:SS');
        WHEN 121, 21, 25 THEN RETURN to_char(value, 'YYYY-MM-DD HH24:MI:SS') || tsql.point_fraction(value, digits);
        WHEN 126, 127 THEN
            RETURN to_char(value, 'YYYY-MM-DD"T"HH24:MI:SS')
                || CASE WHEN to_char(value, 'US') = '000000' THEN '' ELSE tsql.point_fraction(value, digits) END
                || CASE style WHEN 127 THEN 'Z' ELSE '' END;
        WHEN 0, 100 THEN RETURN to_char(value, 'Mon ') || tsql.day_text(value) || to_char(value, ' YYYY ') || tsql.hour12(value) || to_char(value, ':MIAM');
        WHEN 9, 109 THEN
            RETURN to_char(value, 'Mon ') || tsql.day_text(value) || to_char(value, ' YYYY ') || tsql.hour12(value) || to_char(value, ':MI:SS')
                || fraction || to_char(value, 'AM');
        WHEN 1, 101 THEN RETURN to_char(value, 'MM/DD/' || year);
        WHEN 2, 102 THEN RETURN to_char(value, year || '.MM.DD');
        WHEN 3, 103 THEN RETURN to_char(value, 'DD/MM/' || year);
        WHEN 4, 104 THEN RETURN to_char(value, 'DD.MM.' || year);
        WHEN 5, 105 THEN RETURN to_char(value, 'DD-MM-' || year);
        WHEN 6, 106 THEN RETURN to_char(value, 'DD Mon ' || year);
        WHEN 7, 107 THEN RETURN to_char(value, 'Mon DD, ' || year);
        WHEN 8, 24, 108 THEN RETURN to_char(value, 'HH24:MI:SS');
        WHEN 10, 110 THEN RETURN to_char(value, 'MM-DD-' || year);
        WHEN 11, 111 THEN RETURN to_char(value, year || '/MM/DD');
        WHEN 12, 112 THEN RETURN to_char(value, year || 'MMDD');
        WHEN 13, 113 THEN RETURN to_char(value, 'DD Mon YYYY HH24:MI:SS') || fraction;
        WHEN 14, 114 THEN RETURN to_char(value, 'HH24:MI:SS') || fraction;
        WHEN 22 THEN RETURN to_char(value, 'MM/DD/YY ') || tsql.hour12(value) || to_char(value, ':MI:SS AM');
        WHEN 23 THEN RETURN to_char(value, 'YYYY-MM-DD');
        ELSE RETURN tsql.fail(281, '%s is not a valid style number when converting from datetime to a character string.', style::text);
    END CASE;
END $$;
CREATE OR REPLACE FUNCTION tsql.date_to_text(value date, style int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN style IN (20, 21, 23, 25, 120, 121, 126, 127) THEN to_char(value, 'YYYY-MM-DD')
    WHEN style IN (0, 100, 9, 109) THEN to_char(value, 'Mon ') || tsql.day_text(value) || to_char(value, ' YYYY')
    WHEN style IN (13, 113) THEN to_char(value, 'DD Mon YYYY') ELSE tsql.timestamp_to_text(value::timestamp, style, 0) END;
CREATE OR REPLACE FUNCTION tsql.time_to_text(value time, style int, digits int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN style IN (0, 100) THEN tsql.hour12(moment) || to_char(moment, ':MIAM')
        WHEN style IN (8, 20, 24, 108, 120) THEN to_char(moment, 'HH24:MI:SS')
        ELSE to_char(moment, 'HH24:MI:SS') || tsql.point_fraction(moment, digits) END
    FROM (SELECT date '1900-01-01' + value AS moment) m $$;
CREATE OR REPLACE FUNCTION tsql.datetimeoffset_to_text(value tsql.datetimeoffset, style int, digits int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN style = 127 THEN to_char((value).utc, 'YYYY-MM-DD"T"HH24:MI:SS') || tsql.point_fraction((value).utc, digits) || 'Z'
    WHEN style = 126 THEN tsql.timestamp_to_text(tsql.local_time(value), 126, digits) || tsql.offset_text((value).offset_minutes)
    ELSE tsql.timestamp_to_text(tsql.local_time(value), style, digits) || ' ' || tsql.offset_text((value).offset_minutes) END;

-- Metadata ------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.db_id(name text, current text) RETURNS int2 LANGUAGE sql STABLE AS $$
    SELECT database_id::int2 FROM emulator.databases d WHERE lower(d.name) = lower(coalesce($1, $2)) ORDER BY d.name = coalesce($1, $2) DESC LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.db_name(id int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $1 IS NULL THEN $2 ELSE (SELECT name FROM emulator.databases WHERE database_id = $1) END $$;
CREATE OR REPLACE FUNCTION tsql.schema_id(name text, current text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT s.schema_id FROM emulator.schemas s WHERE s.database_id = tsql.db_id($2, $2) AND lower(s.name) = lower(coalesce($1, 'dbo')) LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.schema_name(id int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT s.name FROM emulator.schemas s WHERE s.database_id = tsql.db_id($2, $2)
        AND s.schema_id = coalesce($1, (SELECT schema_id FROM emulator.schemas WHERE database_id = s.database_id AND name = 'dbo')) $$;
CREATE OR REPLACE FUNCTION tsql.object_id(name text, type text, current text) RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE
    parts text[] := tsql.name_parts(name);
    wanted text := btrim(upper(type));
    found int;
BEGIN
    IF parts[1] LIKE '#%' THEN
        RETURN to_regclass('pg_temp.' || quote_ident(parts[1]))::oid::int;
    END IF;
    SELECT o.object_id INTO found
    FROM emulator.objects o JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
    WHERE o.database_id = tsql.db_id(nullif(parts[3], ''), current) AND lower(o.name) = lower(parts[1])
      AND CASE WHEN coalesce(parts[2], '') = '' THEN s.name IN ('dbo', 'sys') ELSE lower(s.name) = lower(parts[2]) END
      AND (wanted IS NULL OR o.type = wanted)
    ORDER BY (o.name = parts[1]) DESC, (s.name = 'dbo') DESC LIMIT 1;
    RETURN found;
END $$;
CREATE OR REPLACE FUNCTION tsql.object_name(id int, database int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT o.name FROM emulator.objects o WHERE o.object_id = $1 AND o.database_id = coalesce($2, tsql.db_id($3, $3)) $$;
CREATE OR REPLACE FUNCTION tsql.object_schema_name(id int, database int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT s.name FROM emulator.objects o JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
    WHERE o.object_id = $1 AND o.database_id = coalesce($2, tsql.db_id($3, $3)) $$;
CREATE OR REPLACE FUNCTION tsql.object_definition(id int) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT definition FROM emulator.objects WHERE object_id = $1 $$;
CREATE OR REPLACE FUNCTION tsql.col_name(table_id int, id int) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT name FROM emulator.columns WHERE object_id = $1 AND column_id = $2 $$;
CREATE OR REPLACE FUNCTION tsql.byte_length(type_name text, length int, digits int) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE type_name WHEN 'bit' THEN 1 WHEN 'tinyint' THEN 1 WHEN 'smallint' THEN 2 WHEN 'int' THEN 4 WHEN 'bigint' THEN 8
        WHEN 'money' THEN 8 WHEN 'smallmoney' THEN 4 WHEN 'real' THEN 4 WHEN 'float' THEN 8 WHEN 'date' THEN 3 WHEN 'datetime' THEN 8
        WHEN 'smalldatetime' THEN 4 WHEN 'uniqueidentifier' THEN 16 WHEN 'rowversion' THEN 8 WHEN 'sysname' THEN 256
        WHEN 'time' THEN 5 WHEN 'datetime2' THEN 8 WHEN 'datetimeoffset' THEN 10 WHEN 'text' THEN 16 WHEN 'ntext' THEN 16 WHEN 'image' THEN 16
        WHEN 'decimal' THEN CASE WHEN digits < 10 THEN 5 WHEN digits < 20 THEN 9 WHEN digits < 29 THEN 13 ELSE 17 END
        WHEN 'numeric' THEN CASE WHEN digits < 10 THEN 5 WHEN digits < 20 THEN 9 WHEN digits < 29 THEN 13 ELSE 17 END
        WHEN 'xml' THEN -1 WHEN 'sql_variant' THEN 8016
        WHEN 'nchar' THEN length * 2 WHEN 'nvarchar' THEN CASE WHEN length < 0 THEN -1 ELSE length * 2 END ELSE length END $$;
CREATE OR REPLACE FUNCTION tsql.col_length(table_name text, column_name text, current text) RETURNS int2 LANGUAGE sql STABLE AS $$
    SELECT tsql.byte_length(c.type_name, c.length, c.precision)::int2 FROM emulator.columns c
    WHERE c.object_id = tsql.object_id($1, NULL, $3) AND lower(c.name) = lower($2) LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.columnproperty(id int, column_name text, property text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE lower($3) WHEN 'isidentity' THEN (c.identity_seed IS NOT NULL)::int WHEN 'iscomputed' THEN (c.computed_definition IS NOT NULL)::int
        WHEN 'allowsnull' THEN c.is_nullable::int WHEN 'columnid' THEN c.column_id WHEN 'ordinal' THEN c.column_id WHEN 'scale' THEN c.scale
        WHEN 'precision' THEN CASE WHEN c.length <> 0 THEN c.length ELSE c.precision END WHEN 'isrowguidcol' THEN c.is_rowguidcol::int
        WHEN 'charmaxlen' THEN c.length WHEN 'issparse' THEN 0 WHEN 'iscolumnset' THEN 0 WHEN 'ishidden' THEN 0
        WHEN 'generatedalwaystype' THEN 0 WHEN 'isidnotforrepl' THEN 0 END
    FROM emulator.columns c WHERE c.object_id = $1 AND lower(c.name) = lower($2) LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.objectproperty(id int, property text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE lower($2) WHEN 'istable' THEN (o.type = 'U')::int WHEN 'isusertable' THEN (o.type = 'U' AND NOT o.is_system)::int
        WHEN 'isview' THEN (o.type = 'V')::int WHEN 'isprocedure' THEN (o.type = 'P')::int WHEN 'ownerid' THEN 1 WHEN 'schemaid' THEN o.schema_id
        WHEN 'ismsshipped' THEN o.is_ms_shipped::int WHEN 'isinlinefunction' THEN (o.type = 'IF')::int WHEN 'istablefunction' THEN (o.type IN ('IF', 'TF'))::int
        WHEN 'isprimarykey' THEN (o.type = 'PK')::int WHEN 'issystemtable' THEN 0 WHEN 'isencrypted' THEN 0
        WHEN 'tablehasprimarykey' THEN EXISTS (SELECT FROM emulator.objects k WHERE k.parent_object_id = o.object_id AND k.type = 'PK')::int
        WHEN 'tablehasidentity' THEN EXISTS (SELECT FROM emulator.columns c WHERE c.object_id = o.object_id AND c.identity_seed IS NOT NULL)::int END
    FROM emulator.objects o WHERE o.object_id = $1 $$;
CREATE OR REPLACE FUNCTION tsql.index_col(table_name text, index_id int, key_id int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT c.name FROM emulator.index_columns ic JOIN emulator.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
    WHERE ic.object_id = tsql.object_id($1, NULL, $4) AND ic.index_id = $2 AND ic.key_ordinal = $3 $$;
CREATE OR REPLACE FUNCTION tsql.type_ids() RETURNS TABLE (id int, name text) LANGUAGE sql IMMUTABLE AS $$
    VALUES (34, 'image'), (35, 'text'), (36, 'uniqueidentifier'), (40, 'date'), (41, 'time'), (42, 'datetime2'), (43, 'datetimeoffset'),
        (48, 'tinyint'), (52, 'smallint'), (56, 'int'), (58, 'smalldatetime'), (59, 'real'), (60, 'money'), (61, 'datetime'), (62, 'float'),
        (98, 'sql_variant'), (99, 'ntext'), (104, 'bit'), (106, 'decimal'), (108, 'numeric'), (122, 'smallmoney'), (127, 'bigint'),
        (165, 'varbinary'), (167, 'varchar'), (173, 'binary'), (175, 'char'), (189, 'timestamp'), (231, 'nvarchar'), (239, 'nchar'),
        (241, 'xml'), (256, 'sysname') $$;
CREATE OR REPLACE FUNCTION tsql.type_name(type_id int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT name FROM tsql.type_ids() WHERE id = $1),
        (SELECT t.name FROM emulator.user_types t WHERE t.user_type_id = $1 AND t.database_id = tsql.db_id($2, $2))) $$;
CREATE OR REPLACE FUNCTION tsql.type_id(type_name text, current text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT id FROM tsql.type_ids() WHERE name = lower((tsql.name_parts($1))[1])),
        (SELECT t.user_type_id FROM emulator.user_types t WHERE lower(t.name) = lower((tsql.name_parts($1))[1]) AND t.database_id = tsql.db_id($2, $2) LIMIT 1)) $$;
CREATE OR REPLACE FUNCTION tsql.identity_column(table_name text, current text, OUT seed numeric, OUT increment numeric, OUT sequence regclass)
LANGUAGE sql STABLE AS $$
    SELECT c.identity_seed, c.identity_increment,
        pg_get_serial_sequence(quote_ident(s.postgres_name) || '.' || quote_ident(o.postgres_name), c.postgres_name)::regclass
    FROM emulator.columns c JOIN emulator.objects o ON o.object_id = c.object_id
    JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
    WHERE c.object_id = tsql.object_id($1, NULL, $2) AND c.identity_seed IS NOT NULL $$;
CREATE OR REPLACE FUNCTION tsql.ident_current(table_name text, current text) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT coalesce(pg_sequence_last_value(i.sequence)::numeric, i.seed) FROM tsql.identity_column($1, $2) i $$;
CREATE OR REPLACE FUNCTION tsql.ident_seed(table_name text, current text) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT i.seed FROM tsql.identity_column($1, $2) i $$;
CREATE OR REPLACE FUNCTION tsql.ident_incr(table_name text, current text) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT i.increment FROM tsql.identity_column($1, $2) i $$;
CREATE OR REPLACE FUNCTION tsql.serverproperty(property text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE lower($1) WHEN 'productversion' THEN '16.0.4135.4' WHEN 'productlevel' THEN 'RTM' WHEN 'productmajorversion' THEN '16'
        WHEN 'productminorversion' THEN '0' WHEN 'productbuild' THEN '4135' WHEN 'productupdatelevel' THEN 'CU14' WHEN 'edition' THEN 'Developer Edition (64-bit)'
        WHEN 'editionid' THEN '-2117995310' WHEN 'engineedition' THEN '3' WHEN 'servername' THEN 'FLOODMARK' WHEN 'machinename' THEN 'FLOODMARK'
        WHEN 'instancename' THEN NULL WHEN 'collation' THEN 'Latin1_General_100_BIN2' WHEN 'isclustered' THEN '0' WHEN 'ishadrenabled' THEN '0'
        WHEN 'issingleuser' THEN '0' WHEN 'isintegratedsecurityonly' THEN '0' WHEN 'isfulltextinstalled' THEN '0' WHEN 'isxtpsupported' THEN '0'
        WHEN 'processid' THEN pg_backend_pid()::text WHEN 'resourceversion' THEN '16.00.4135' WHEN 'lcid' THEN '1033'
        WHEN 'sqlcharsetname' THEN 'iso_1' WHEN 'issqlserveragentrunning' THEN '1' END $$;
CREATE OR REPLACE FUNCTION tsql.databasepropertyex(database text, property text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE lower($2) WHEN 'collation' THEN 'Latin1_General_100_BIN2' WHEN 'status' THEN 'ONLINE' WHEN 'updateability' THEN 'READ_WRITE'
        WHEN 'useraccess' THEN 'MULTI_USER' WHEN 'version' THEN '957' WHEN 'isautoclose' THEN '0' WHEN 'isautoshrink' THEN '0'
        WHEN 'isinstandby' THEN '0' WHEN 'isansinullsenabled' THEN '1' WHEN 'isfulltextenabled' THEN '0'
        WHEN 'recovery' THEN CASE d.recovery_model WHEN 3 THEN 'SIMPLE' WHEN 2 THEN 'BULK_LOGGED' ELSE 'FULL' END
        WHEN 'comparisonstyle' THEN '0' WHEN 'lcid' THEN '1033' END
    FROM emulator.databases d WHERE lower(d.name) = lower($1) LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.collationproperty(collation_name text, property text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE lower($2) WHEN 'codepage' THEN '1252' WHEN 'lcid' THEN '1033' WHEN 'comparisonstyle' THEN '0' WHEN 'version' THEN '2' END $$;

-- The session ---------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.login_name(current text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT login FROM emulator.sessions WHERE backend_pid = pg_backend_pid() $$;
CREATE OR REPLACE FUNCTION tsql.suser_sname(id bytea, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $1 IS NULL THEN tsql.login_name($2) WHEN $1 = '\x01' THEN 'sa' END $$;
CREATE OR REPLACE FUNCTION tsql.suser_id(login text, current text) RETURNS int LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT principal_id FROM emulator.logins WHERE lower(name) = lower(coalesce($1, tsql.login_name($2))) $$;
CREATE OR REPLACE FUNCTION tsql.app_name(current text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT application FROM emulator.sessions WHERE backend_pid = pg_backend_pid() $$;
CREATE OR REPLACE FUNCTION tsql.host_name(current text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'localhost' $$;
CREATE OR REPLACE FUNCTION tsql.host_id(current text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT pg_backend_pid()::text $$;
CREATE OR REPLACE FUNCTION tsql.is_sysadmin() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT coalesce((SELECT l.is_sysadmin FROM emulator.sessions s JOIN emulator.logins l ON l.name = s.login WHERE s.backend_pid = pg_backend_pid()), false) $$;
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
CREATE OR REPLACE FUNCTION tsql.has_perms_by_name(securable text, class text, permission text, sub_securable text, sub_class int, current text)
RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE relation oid;
BEGIN
    IF tsql.is_sysadmin() THEN RETURN 1; END IF;
    IF upper(class) = 'OBJECT' THEN
        relation := tsql.object_id(securable, NULL, current);
        IF relation IS NULL THEN RETURN NULL; END IF;
        RETURN (upper(permission) IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') AND has_table_privilege(relation, permission))::int;
    END IF;
    RETURN 0;
END $$;
