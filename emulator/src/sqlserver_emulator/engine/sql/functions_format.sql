-- FORMAT, with the standard and custom patterns of .NET in the culture en-US. A pattern that is none gives NULL.

CREATE OR REPLACE FUNCTION tsql.format_date(moment tsql.datetime2, pattern text) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
    value timestamp := tsql.cut(moment);
    rest text := CASE pattern
        WHEN 'd' THEN 'M/d/yyyy' WHEN 'D' THEN 'dddd, MMMM d, yyyy' WHEN 'f' THEN 'dddd, MMMM d, yyyy h:mm tt' WHEN 'F' THEN 'dddd, MMMM d, yyyy h:mm:ss tt'
        WHEN 'g' THEN 'M/d/yyyy h:mm tt' WHEN 'G' THEN 'M/d/yyyy h:mm:ss tt' WHEN 'm' THEN 'MMMM d' WHEN 'M' THEN 'MMMM d'
        WHEN 'o' THEN 'yyyy-MM-ddTHH:mm:ss.fffffff' WHEN 'O' THEN 'yyyy-MM-ddTHH:mm:ss.fffffff' WHEN 'r' THEN 'ddd, dd MMM yyyy HH:mm:ss \G\M\T'
        WHEN 'R' THEN 'ddd, dd MMM yyyy HH:mm:ss \G\M\T' WHEN 's' THEN 'yyyy-MM-ddTHH:mm:ss' WHEN 't' THEN 'h:mm tt' WHEN 'T' THEN 'h:mm:ss tt'
        WHEN 'u' THEN 'yyyy-MM-dd HH:mm:ss\Z' WHEN 'y' THEN 'MMMM yyyy' WHEN 'Y' THEN 'MMMM yyyy'
        ELSE CASE WHEN pattern ~ '^%.$' THEN pg_catalog.substr(pattern, 2) WHEN char_length(pattern) = 1 THEN NULL ELSE pattern END END;
    result text := '';
    token text;
    fraction text;
BEGIN
    IF rest IS NULL THEN RETURN NULL; END IF;
    WHILE rest <> '' LOOP
        token := substring(rest from '^(?:d+|M+|y+|h+|H+|m+|s+|f+|F+|t+|''[^'']*''|"[^"]*"|\\.|[zK]+|.)');
        rest := pg_catalog.substr(rest, char_length(token) + 1);
        result := result || CASE
            WHEN token = 'd' THEN to_char(value, 'FMDD') WHEN token = 'dd' THEN to_char(value, 'DD') WHEN token = 'ddd' THEN to_char(value, 'Dy')
            WHEN token ~ '^d{4,}$' THEN to_char(value, 'FMDay') WHEN token = 'M' THEN to_char(value, 'FMMM') WHEN token = 'MM' THEN to_char(value, 'MM')
            WHEN token = 'MMM' THEN to_char(value, 'Mon') WHEN token ~ '^M{4,}$' THEN to_char(value, 'FMMonth')
            WHEN token = 'y' THEN (extract(year FROM value)::int % 100)::text WHEN token = 'yy' THEN to_char(value, 'YY')
            WHEN token ~ '^y{3,}$' THEN lpad(extract(year FROM value)::text, greatest(char_length(token), 4), '0')
            WHEN token = 'h' THEN to_char(value, 'FMHH12') WHEN token ~ '^h+$' THEN to_char(value, 'HH12')
            WHEN token = 'H' THEN to_char(value, 'FMHH24') WHEN token ~ '^H+$' THEN to_char(value, 'HH24')
            WHEN token = 'm' THEN to_char(value, 'FMMI') WHEN token ~ '^m+$' THEN to_char(value, 'MI')
            WHEN token = 's' THEN to_char(value, 'FMSS') WHEN token ~ '^s+$' THEN to_char(value, 'SS')
            WHEN token ~ '^f{1,7}$' THEN tsql.fraction(moment, char_length(token)) WHEN token ~ '^F{1,7}$' THEN rtrim(tsql.fraction(moment, char_length(token)), '0')
            WHEN token = 't' THEN to_char(value, 'AM')::char(1) WHEN token ~ '^t+$' THEN to_char(value, 'AM')
            WHEN token ~ '^[zK]+$' THEN tsql.fail(49999, 'sqlserver_emulator does not support FORMAT with %s. See docs/emulator.md.', token)
            WHEN token ~ '^[''"]' AND char_length(token) > 1 THEN pg_catalog.substr(token, 2, char_length(token) - 2)
            WHEN token LIKE '\\_' THEN pg_catalog.substr(token, 2) ELSE token END;
    END LOOP;
    RETURN result;
END $$;

-- Digits of a number without a sign, rounded, at least so many before the point, with or without commas between thousands.
CREATE OR REPLACE FUNCTION tsql.format_digits(value numeric, whole_digits int, least_fraction int, most_fraction int, grouped boolean)
RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    plain text := pg_catalog.round(abs(value), most_fraction)::text;
    whole text := ltrim(split_part(plain, '.', 1), '0');
    fraction text := split_part(plain, '.', 2);
BEGIN
    whole := CASE WHEN char_length(whole) < whole_digits THEN lpad(whole, whole_digits, '0') ELSE whole END;
    IF grouped THEN whole := reverse(regexp_replace(reverse(whole), '(\d{3})(?=\d)', '\1,', 'g')); END IF;
    WHILE char_length(fraction) > least_fraction AND fraction LIKE '%0' LOOP fraction := pg_catalog.left(fraction, -1); END LOOP;
    RETURN whole || CASE WHEN fraction = '' THEN '' ELSE '.' || fraction END;
END $$;
CREATE OR REPLACE FUNCTION tsql.format_number(value numeric, pattern text, is_whole boolean) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    kind text := upper(pg_catalog.left(pattern, 1));
    digits int := CASE WHEN pattern ~ '^[A-Za-z]\d{1,2}$' THEN pg_catalog.substr(pattern, 2)::int END;
    minus text := CASE WHEN value < 0 THEN '-' ELSE '' END;
    exponent int;
BEGIN
    IF pattern !~ '^[A-Za-z]\d{0,2}$' THEN RETURN tsql.format_custom(value, pattern); END IF;
    CASE kind
        WHEN 'N' THEN RETURN minus || tsql.format_digits(value, 1, coalesce(digits, 2), coalesce(digits, 2), true);
        WHEN 'F' THEN RETURN minus || tsql.format_digits(value, 1, coalesce(digits, 2), coalesce(digits, 2), false);
        WHEN 'C' THEN
            RETURN CASE WHEN value < 0 THEN '($' ELSE '$' END || tsql.format_digits(value, 1, coalesce(digits, 2), coalesce(digits, 2), true)
                || CASE WHEN value < 0 THEN ')' ELSE '' END;
        WHEN 'P' THEN RETURN minus || tsql.format_digits(value * 100, 1, coalesce(digits, 2), coalesce(digits, 2), true) || ' %';
        WHEN 'D' THEN RETURN CASE WHEN is_whole THEN minus || tsql.format_digits(value, coalesce(digits, 1), 0, 0, false) END;
        WHEN 'X' THEN
            RETURN CASE WHEN is_whole THEN lpad(CASE WHEN pattern LIKE 'x%' THEN to_hex(value::bigint) ELSE upper(to_hex(value::bigint)) END,
                greatest(coalesce(digits, 0), char_length(to_hex(value::bigint))), '0') END;
        WHEN 'E' THEN
            exponent := CASE WHEN value = 0 THEN 0 ELSE floor(log(abs(value))) END;
            RETURN minus || pg_catalog.round(abs(value) / 10::numeric ^ exponent, coalesce(digits, 6)) || pg_catalog.left(pattern, 1)
                || CASE WHEN exponent < 0 THEN '-' ELSE '+' END || lpad(abs(exponent)::text, 3, '0');
        WHEN 'G' THEN RETURN CASE WHEN digits IS NULL THEN value::text
            ELSE tsql.fail(49999, 'sqlserver_emulator does not support FORMAT with %s. See docs/emulator.md.', pattern) END;
        ELSE RETURN NULL;
    END CASE;
END $$;
-- Custom patterns: 0 # . , % and what stands around them; up to three sections for positive, negative and zero.
CREATE OR REPLACE FUNCTION tsql.format_custom(value numeric, pattern text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    sections text[] := string_to_array(pattern, ';');
    section text := CASE WHEN value < 0 AND coalesce(sections[2], '') <> '' THEN sections[2] WHEN value = 0 AND coalesce(sections[3], '') <> '' THEN sections[3] ELSE sections[1] END;
    minus text := CASE WHEN value < 0 AND coalesce(sections[2], '') = '' THEN '-' ELSE '' END;
    body text := substring(section from '[0#](?:[0#,.]*[0#])?');
    whole text := split_part(body, '.', 1);
    fraction text := split_part(body, '.', 2);
    written text;
BEGIN
    IF section ~ '[‰Ee\\''"]' OR section ~ '[0#,.]*[0#].*[^0#,.].*[0#]' THEN
        RETURN tsql.fail(49999, 'sqlserver_emulator does not support FORMAT with %s. See docs/emulator.md.', pattern);
    END IF;
    IF body IS NULL THEN RETURN minus || section; END IF;
    written := tsql.format_digits(CASE WHEN strpos(section, '%') > 0 THEN value * 100 ELSE value END, char_length(regexp_replace(whole, '[^0]', '', 'g')),
        char_length(rtrim(fraction, '#')), char_length(fraction), strpos(whole, ',') > 0);
    RETURN minus || replace(section, body, written);
END $$;
