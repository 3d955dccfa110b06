-- String functions, names and patterns.

-- Strings -------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.little_endian(code int) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN set_byte(set_byte('\x0000'::bytea, 0, code & 255), 1, code >> 8);
-- U+0000 and the halves of surrogate pairs are held as characters of plane 16, from U+10F000 on (ADR 50); a character that
-- is one of these itself is the two halves of its pair.
CREATE OR REPLACE FUNCTION tsql.unescaped_unit(code int) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN code = 1112064 THEN 0 WHEN code BETWEEN 1110016 AND 1112063 THEN code - 1110016 + 55296 ELSE code END;
CREATE OR REPLACE FUNCTION tsql.unit_text(unit int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN unit = 0 THEN chr(1112064) WHEN unit BETWEEN 55296 AND 57343 THEN chr(unit - 55296 + 1110016) ELSE chr(unit) END;
CREATE OR REPLACE FUNCTION tsql.pair_text(high int, low int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN 65536 + ((high - 55296) << 10) + low - 56320 BETWEEN 1110016 AND 1112064 THEN tsql.unit_text(high) || tsql.unit_text(low)
    ELSE chr(65536 + ((high - 55296) << 10) + low - 56320) END;
CREATE OR REPLACE FUNCTION tsql.to_utf16(value text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    -- Each character, followed by the byte 0, in the form that decode(…, 'escape') reads.
    units text := array_to_string(array_replace(string_to_array(value, NULL), '\', '\\'), '\000') || '\000';
    others text; mark text; code int;
BEGIN
    IF value = '' THEN RETURN ''; END IF;
    IF octet_length(value) > char_length(value) THEN
        others := regexp_replace(value, '[\x01-\x7f]+', '', 'g');
        WHILE others <> '' LOOP
            mark := pg_catalog.left(others, 1);
            code := tsql.unescaped_unit(pg_catalog.ascii(mark));
            units := pg_catalog.replace(units, mark || '\000', encode(CASE WHEN code < 65536 THEN tsql.little_endian(code)
                ELSE tsql.little_endian(55296 + ((code - 65536) >> 10)) || tsql.little_endian(56320 + ((code - 65536) & 1023)) END, 'escape'));
            others := pg_catalog.replace(others, mark, '');
        END LOOP;
    END IF;
    RETURN decode(units, 'escape');
END $$;
CREATE OR REPLACE FUNCTION tsql.from_utf16(value bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    result text := ''; code int; high int;
BEGIN
    -- An odd byte at the end is the lower half of a unit.
    FOR i IN 0 .. (octet_length(value) + 1) / 2 - 1 LOOP
        code := get_byte(value, 2 * i) + CASE WHEN 2 * i + 1 < octet_length(value) THEN 256 * get_byte(value, 2 * i + 1) ELSE 0 END;
        IF high IS NOT NULL AND code BETWEEN 56320 AND 57343 THEN
            result := result || tsql.pair_text(high, code);
            high := NULL;
            CONTINUE;
        END IF;
        IF high IS NOT NULL THEN result := result || tsql.unit_text(high); END IF;
        high := CASE WHEN code BETWEEN 55296 AND 56319 THEN code END;
        IF high IS NULL THEN result := result || tsql.unit_text(code); END IF;
    END LOOP;
    RETURN result || coalesce(tsql.unit_text(high), '');
END $$;

-- bpchar, whose comparison ignores blanks at the end, back to text without losing them: `varchar` returns a string as it
-- is when there is no length to check, and does not look at its type.
CREATE OR REPLACE FUNCTION tsql.unpadded(value bpchar, modifier int, explicit boolean) RETURNS text LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE
AS 'varchar';
-- SQL Server counts UTF-16 code units.
CREATE OR REPLACE FUNCTION tsql.utf16_length(value text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(value) = char_length(value) THEN char_length(value)
    ELSE char_length(value) + regexp_count(value, '[\U00010000-\U0010EFFF\U0010F801-\U0010FFFF]') END;
-- A string of one character for each code unit: those beyond the first plane become the halves of their pairs (ADR 50).
CREATE OR REPLACE FUNCTION tsql.has_pairs(value text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN octet_length(value) <> char_length(value) AND value ~ '[\U00010000-\U0010EFFF\U0010F801-\U0010FFFF]';
CREATE OR REPLACE FUNCTION tsql.spread(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    result text := ''; mark text; code int;
BEGIN
    IF value IS NULL OR NOT tsql.has_pairs(value) THEN RETURN value; END IF;
    FOREACH mark IN ARRAY regexp_split_to_array(value, '') LOOP
        code := pg_catalog.ascii(mark);
        result := result || CASE WHEN code < 65536 OR code BETWEEN 1110016 AND 1112064 THEN mark
            ELSE chr(1110016 + ((code - 65536) >> 10)) || chr(1111040 + ((code - 65536) & 1023)) END;
    END LOOP;
    RETURN result;
END $$;
-- The other direction, where two halves have met: a text has one form only.
CREATE OR REPLACE FUNCTION tsql.joined(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(value) <> char_length(value) AND value ~ '[\U0010F000-\U0010F3FF][\U0010F400-\U0010F7FF]'
    THEN tsql.from_utf16(tsql.to_utf16(value)) ELSE value END;
CREATE OR REPLACE FUNCTION tsql.len(value text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN tsql.utf16_length(pg_catalog.rtrim(value, ' '));
CREATE OR REPLACE FUNCTION tsql.substring(value text, start int, length int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length < 0 THEN tsql.fail(537, 'Invalid length parameter passed to the LEFT or SUBSTRING function.', length::text)
    WHEN tsql.has_pairs(value) THEN tsql.joined(pg_catalog.substr(tsql.spread(value), start, length))
    ELSE pg_catalog.substr(value, start, length) END;
CREATE OR REPLACE FUNCTION tsql.substring_binary(value bytea, start int, length int) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length < 0
    THEN tsql.fail(537, 'Invalid length parameter passed to the LEFT or SUBSTRING function.', length::text)::bytea
    ELSE pg_catalog.substr(value, greatest(start, 1), greatest(length + least(start - 1, 0), 0)) END;
CREATE OR REPLACE FUNCTION tsql.left(value text, length int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length < 0 THEN tsql.fail(537, 'Invalid length parameter passed to the LEFT or SUBSTRING function.', length::text)
    WHEN tsql.has_pairs(value) THEN tsql.joined(pg_catalog.left(tsql.spread(value), length)) ELSE pg_catalog.left(value, length) END;
CREATE OR REPLACE FUNCTION tsql.right(value text, length int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN length < 0 THEN tsql.fail(536, 'Invalid length parameter passed to the RIGHT function.', length::text)
    WHEN length = 0 THEN ''
    WHEN tsql.has_pairs(value) THEN tsql.joined(pg_catalog.right(tsql.spread(value), length)) ELSE pg_catalog.right(value, length) END;
-- char(n) as text, with the blanks at its end.
CREATE OR REPLACE FUNCTION tsql.padded(value text, length int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN tsql.has_pairs(value) THEN rpad(value, length - tsql.utf16_length(value) + char_length(value)) ELSE rpad(value, length) END;

-- Declared lengths. PostgreSQL calls a function where a value becomes a varchar(n) or char(n), by a cast or in a column, which
-- counts characters; these count code units, and are called in its place. Only what has pairs is counted here.
CREATE OR REPLACE FUNCTION tsql.fit_units(value text, length int, explicit boolean, type text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF tsql.utf16_length(value) <= length THEN
        RETURN value;
    END IF;
    -- Blanks that have no place are dropped.
    IF NOT explicit AND tsql.len(value) > length THEN
        RAISE string_data_right_truncation USING MESSAGE = format('value too long for type %s(%s)', type, length);
    END IF;
    RETURN tsql.left(value, length);
END $$;
-- Not in SQL, which is slow where it cannot be written out: below other conversions.
-- The support function is PostgreSQL's, too: a longer varchar needs no check, so no ALTER COLUMN rewrites the table for it.
CREATE OR REPLACE FUNCTION tsql.fit_varchar(value varchar, modifier int, explicit boolean) RETURNS varchar
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SUPPORT pg_catalog.varchar_support AS $$
BEGIN
    IF octet_length(value) <= modifier - 4 THEN RETURN value; END IF;
    RETURN CASE WHEN tsql.has_pairs(value) THEN tsql.fit_units(value, modifier - 4, explicit, 'character varying')
        ELSE pg_catalog."varchar"(value, modifier, explicit) END;
END $$;
CREATE OR REPLACE FUNCTION tsql.fit_char(value bpchar, modifier int, explicit boolean) RETURNS bpchar
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN CASE WHEN tsql.has_pairs(value::text)
        THEN tsql.padded(tsql.fit_units(value::text, modifier - 4, explicit, 'character'), modifier - 4)::bpchar
        ELSE pg_catalog.bpchar(value, modifier, explicit) END;
END $$;
DO $do$ BEGIN
    PERFORM set_config('allow_system_table_mods', 'on', true);
    UPDATE pg_cast SET castfunc = 'tsql.fit_varchar(varchar, int, boolean)'::regprocedure
    WHERE castsource = 'varchar'::regtype AND casttarget = 'varchar'::regtype;
    UPDATE pg_cast SET castfunc = 'tsql.fit_char(bpchar, int, boolean)'::regprocedure
    WHERE castsource = 'bpchar'::regtype AND casttarget = 'bpchar'::regtype;
    PERFORM set_config('allow_system_table_mods', 'off', true);
END $do$;
CREATE OR REPLACE FUNCTION tsql.charindex(part text, value text, start int DEFAULT 1) RETURNS int
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN part = '' THEN 0 WHEN found > 0 THEN found + greatest(start, 1) - 1 ELSE 0 END
    FROM (SELECT strpos(pg_catalog.substr(tsql.spread(value), greatest(start, 1)), tsql.spread(part)) AS found) f $$;
CREATE OR REPLACE FUNCTION tsql.replace(value text, old text, new text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN old = '' THEN value WHEN tsql.has_pairs(value) OR tsql.has_pairs(new)
    THEN tsql.joined(pg_catalog.replace(tsql.spread(value), tsql.spread(old), tsql.spread(new)))
    ELSE tsql.joined(pg_catalog.replace(value, old, new)) END;
CREATE OR REPLACE FUNCTION tsql.translate(value text, old text, new text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN tsql.has_pairs(old) OR tsql.has_pairs(new)
    THEN tsql.joined(pg_catalog.translate(tsql.spread(value), tsql.spread(old), tsql.spread(new)))
    ELSE pg_catalog.translate(value, old, new) END;
CREATE OR REPLACE FUNCTION tsql.replicate(value text, count int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN count < 0 THEN NULL ELSE repeat(value, count) END;
CREATE OR REPLACE FUNCTION tsql.space(count int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN count < 0 THEN NULL ELSE repeat(' ', count) END;
CREATE OR REPLACE FUNCTION tsql.stuff(value text, start int, length int, new text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN start <= 0 OR length < 0 OR start > tsql.utf16_length(value) THEN NULL
    ELSE tsql.joined(pg_catalog.left(tsql.spread(value), start - 1) || coalesce(new, '') || pg_catalog.substr(tsql.spread(value), start + length)) END;
CREATE OR REPLACE FUNCTION tsql.quotename(value text, quote text DEFAULT '[') RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN tsql.utf16_length(value) > 128 THEN NULL
    WHEN quote IN ('[', ']') THEN '[' || pg_catalog.replace(value, ']', ']]') || ']'
    WHEN quote IN ('''', '"', '`') THEN quote || pg_catalog.replace(value, quote, quote || quote) || quote
    WHEN quote IN ('(', ')') THEN '(' || pg_catalog.replace(value, ')', '))') || ')'
    WHEN quote IN ('<', '>') THEN '<' || pg_catalog.replace(value, '>', '>>') || '>'
    WHEN quote IN ('{', '}') THEN '{' || pg_catalog.replace(value, '}', '}}') || '}' END;
CREATE OR REPLACE FUNCTION tsql.ascii(value text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN value = '' THEN NULL ELSE get_byte(tsql.text_to_binary(pg_catalog.left(value, 1), 0, false), 0) END $$;
CREATE OR REPLACE FUNCTION tsql.unicode(value text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value = '' THEN NULL WHEN tsql.unescaped_unit(pg_catalog.ascii(value)) > 65535 THEN 55296 + ((pg_catalog.ascii(value) - 65536) >> 10)
    ELSE tsql.unescaped_unit(pg_catalog.ascii(value)) END;
CREATE OR REPLACE FUNCTION tsql.char(code int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN code BETWEEN 0 AND 255 THEN tsql.binary_to_text(set_byte('\x00'::bytea, 0, code), 0, false) END $$;
CREATE OR REPLACE FUNCTION tsql.nchar(code int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN code BETWEEN 0 AND 65535 THEN tsql.unit_text(code) END;
CREATE OR REPLACE FUNCTION tsql.string_escape(value text, kind text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN lower(kind) = 'json' THEN regexp_replace(tsql.json_string(value), '^"|"$', '', 'g') END $$;
CREATE OR REPLACE FUNCTION tsql.string_split(value text, separator text, ordinal int DEFAULT 0)
RETURNS TABLE (value_ text, ordinal_ bigint) LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT part, number FROM unnest(string_to_array($1, $2)) WITH ORDINALITY AS p(part, number) $$;
CREATE OR REPLACE FUNCTION tsql.generate_series(first bigint, last bigint, step bigint DEFAULT 1) RETURNS SETOF bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT pg_catalog.generate_series(first, last, step) $$;

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
CREATE OR REPLACE FUNCTION tsql.like_units(value text, pattern text, escape text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN strpos(pattern, '[') = 0 THEN value LIKE pattern ESCAPE coalesce(escape, '')
    ELSE value ~ ('^' || tsql.like_regex(pattern, escape) || '$') END;
-- A wildcard is one code unit, so a pair is two of them.
CREATE OR REPLACE FUNCTION tsql.like(value text, pattern text, escape text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN tsql.has_pairs(value) OR tsql.has_pairs(pattern) THEN tsql.like_units(tsql.spread(value), tsql.spread(pattern), escape)
    ELSE tsql.like_units(value, pattern, escape) END;
CREATE OR REPLACE FUNCTION tsql.patindex(pattern text, value text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT regexp_instr(tsql.spread(value), CASE WHEN pattern LIKE '\%%' THEN '' ELSE '^' END || tsql.like_regex(middle, NULL)
        || CASE WHEN pattern LIKE '%\%' THEN '' ELSE '$' END)
    FROM (SELECT tsql.spread(regexp_replace(regexp_replace(pattern, '^%', ''), '%$', '')) AS middle) p $$;

-- How an English name sounds: the first letter and three digits; H and W do not part two letters of one sound.
CREATE OR REPLACE FUNCTION tsql.soundex(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    sound text := '';
    letter text;
    code text;
    last text := '';
BEGIN
    FOREACH letter IN ARRAY regexp_split_to_array(upper(substring(value FROM '^[A-Za-z]*')), '') LOOP
        code := translate(letter, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', '0123012-02245501262301-202');
        IF sound = '' THEN
            sound := letter;
        ELSIF code NOT IN ('0', '-') AND code <> last THEN
            sound := sound || code;
        END IF;
        IF code <> '-' THEN
            last := code;
        END IF;
    END LOOP;
    RETURN rpad(left(sound, 4), 4, '0');
END $$;
CREATE OR REPLACE FUNCTION tsql.difference(first text, last text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT count(*)::int FROM generate_series(1, 4) AS at
    WHERE substr(tsql.soundex(first), at, 1) = substr(tsql.soundex(last), at, 1) $$;

-- column.WRITE(value, start, length) ----------------------------------------------------------------------------------

-- No start: at the end. No length: all that follows. No value: the column ends at the start.
CREATE OR REPLACE FUNCTION tsql.write_place(current_length bigint, start bigint, cut bigint) RETURNS void LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF current_length IS NULL THEN PERFORM tsql.fail(49999, 'sqlserver_emulator does not support .WRITE on a value that is NULL. See docs/emulator.md.', ''); END IF;
    IF start < 0 OR start > current_length THEN PERFORM tsql.fail(7116, format('Offset %s is not in the range of available LOB data.', start), ''); END IF;
    IF cut < 0 THEN PERFORM tsql.fail(7135, format('Deletion length %s is not in the range of available text, ntext, or image data.', cut), ''); END IF;
END $$;
CREATE OR REPLACE FUNCTION tsql.write_part(current text, value text, start bigint, cut bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    PERFORM tsql.write_place(length(current), start, cut);
    IF start IS NULL THEN RETURN current || coalesce(value, ''); END IF;
    IF value IS NULL THEN RETURN pg_catalog.left(current, start::int); END IF;
    RETURN overlay(current PLACING value FROM start::int + 1 FOR coalesce(cut, length(current))::int);
END $$;
CREATE OR REPLACE FUNCTION tsql.write_part(current bytea, value bytea, start bigint, cut bigint) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    PERFORM tsql.write_place(length(current), start, cut);
    IF start IS NULL THEN RETURN current || coalesce(value, ''::bytea); END IF;
    IF value IS NULL THEN RETURN pg_catalog.substr(current, 1, start::int); END IF;
    RETURN overlay(current PLACING value FROM start::int + 1 FOR coalesce(cut, length(current))::int);
END $$;
