-- JSON: paths, JSON_VALUE and its kind, OPENJSON, and the pieces of FOR JSON and FOR XML. Values are PostgreSQL's type json,
-- which keeps the text of what it holds: order of keys, digits of numbers, blanks.

-- The steps of a path: '.name' for a property, '[n]' for an element. The first step is 'lax' or 'strict'.
CREATE OR REPLACE FUNCTION tsql.json_steps(path text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    rest text := path;
    steps text[] := ARRAY['lax'];
    found text[];
BEGIN
    IF rest ~ '^\s*(lax|strict)\s' THEN
        steps := ARRAY[btrim(substring(rest from '^\s*(lax|strict)\s'))];
        rest := regexp_replace(rest, '^\s*(lax|strict)\s+', '');
    END IF;
    IF pg_catalog.left(rest, 1) <> '$' THEN PERFORM tsql.json_path_error(path, rest); END IF;
    rest := pg_catalog.substr(rest, 2);
    WHILE rest <> '' LOOP
        found := regexp_match(rest, '^\.(?:"((?:[^"\\]|\\.)*)"|([A-Za-z_$\u0080-\uffff][\w$]*))');
        IF found IS NOT NULL THEN
            steps := steps || ('.' || coalesce(found[2], regexp_replace(found[1], '\\(.)', '\1', 'g')));
            rest := regexp_replace(rest, '^\.("(?:[^"\\]|\\.)*"|[\w$]+)', '');
        ELSIF rest ~ '^\[\s*\d+\s*\]' THEN
            steps := steps || ('[' || btrim(substring(rest from '^\[([^\]]*)\]')));
            rest := regexp_replace(rest, '^\[[^\]]*\]', '');
        ELSE PERFORM tsql.json_path_error(path, rest);
        END IF;
    END LOOP;
    RETURN steps;
END $$;
CREATE OR REPLACE FUNCTION tsql.json_path_error(path text, rest text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN tsql.fail(13607, format('JSON path is not properly formatted. Unexpected character ''%%s'' is found at position %s.',
    char_length(path) - char_length(rest)), pg_catalog.left(rest, 1), 16, 4);
CREATE OR REPLACE FUNCTION tsql.json_text(value text) RETURNS json LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF pg_input_is_valid(value, 'json') THEN RETURN value::json; END IF;
    PERFORM tsql.fail(13609, format('JSON text is not properly formatted. Unexpected character ''%%s'' is found at position %s.',
        char_length(value) - char_length(ltrim(value, E' \t\r\n'))), pg_catalog.left(ltrim(value, E' \t\r\n'), 1), 16, 4);
END $$;
CREATE OR REPLACE FUNCTION tsql.json_step(value json, step text) RETURNS json LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN step LIKE '.%' AND json_typeof(value) = 'object' THEN value -> pg_catalog.substr(step, 2)
    WHEN step LIKE '[%' AND json_typeof(value) = 'array' THEN value -> pg_catalog.substr(step, 2)::int END;
-- What stands at the steps, NULL where nothing does: error 13608 when they are strict.
CREATE OR REPLACE FUNCTION tsql.json_at(value json, steps text[]) RETURNS json LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    found json := value;
    step text;
BEGIN
    FOREACH step IN ARRAY steps[2:] LOOP
        found := tsql.json_step(found, step);
        IF found IS NULL THEN
            IF steps[1] = 'strict' THEN PERFORM tsql.fail(13608, 'Property cannot be found on the specified JSON path.', '', 16, 2); END IF;
            RETURN NULL;
        END IF;
    END LOOP;
    RETURN found;
END $$;
CREATE OR REPLACE FUNCTION tsql.json_scalar(value json, is_strict boolean) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN json_typeof(value) NOT IN ('object', 'array') THEN value #>> '{}'
    WHEN is_strict THEN tsql.fail(13623, 'Scalar value cannot be found in the specified JSON path.', value::text, 16, 2) END;
CREATE OR REPLACE FUNCTION tsql.json_structure(value json, is_strict boolean) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN json_typeof(value) IN ('object', 'array') THEN btrim(value::text, E' \t\r\n')
    WHEN is_strict THEN tsql.fail(13624, 'Object or array cannot be found in the specified JSON path.', value::text, 16, 2) END;
CREATE OR REPLACE FUNCTION tsql.json_value(value text, path text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN tsql.utf16_length(found) <= 4000 THEN found
        WHEN steps[1] = 'strict' THEN tsql.fail(13625, 'String value in the specified JSON path would be truncated.', found, 16, 1) END
    FROM (SELECT tsql.json_scalar(tsql.json_at(tsql.json_text(value), steps), steps[1] = 'strict') AS found, steps
          FROM (SELECT tsql.json_steps(path) AS steps) s) f $$;
CREATE OR REPLACE FUNCTION tsql.json_query(value text, path text DEFAULT '$') RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT tsql.json_structure(tsql.json_at(tsql.json_text(value), steps), steps[1] = 'strict')
    FROM (SELECT tsql.json_steps(path) AS steps) s $$;
CREATE OR REPLACE FUNCTION tsql.json_path_exists(value text, path text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (tsql.json_at(tsql.json_text(value), ARRAY['lax'] || (tsql.json_steps(path))[2:]) IS NOT NULL)::int $$;
DROP FUNCTION IF EXISTS tsql.isjson(text);
CREATE OR REPLACE FUNCTION tsql.isjson(value text, kind text DEFAULT '') RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE upper(kind) WHEN '' THEN (value IS JSON OBJECT OR value IS JSON ARRAY)::int WHEN 'VALUE' THEN (value IS JSON)::int
    WHEN 'OBJECT' THEN (value IS JSON OBJECT)::int WHEN 'ARRAY' THEN (value IS JSON ARRAY)::int WHEN 'SCALAR' THEN (value IS JSON SCALAR)::int END;
CREATE OR REPLACE FUNCTION tsql.json_string(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN pg_catalog.replace(to_json(value)::text, '/', '\/');

-- JSON_MODIFY: the value with what stands at the steps replaced, added, appended to or (new NULL, lax) removed.
CREATE OR REPLACE FUNCTION tsql.json_changed(value json, steps text[], is_strict boolean, appends boolean, new text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    name text := pg_catalog.substr(steps[1], 2);
    inner_value json := tsql.json_step(value, steps[1]);
    changed text;
BEGIN
    IF cardinality(steps) = 0 THEN
        IF appends AND json_typeof(value) = 'array' THEN
            RETURN regexp_replace(rtrim(value::text), '\s*\]$', '') || CASE WHEN json_array_length(value) = 0 THEN '' ELSE ',' END || coalesce(new, 'null') || ']';
        END IF;
        RETURN CASE WHEN appends THEN value::text ELSE coalesce(new, 'null') END;
    END IF;
    IF inner_value IS NULL THEN
        IF is_strict THEN PERFORM tsql.fail(13608, 'Property cannot be found on the specified JSON path.', '', 16, 2); END IF;
        -- Only the last step may be new, and only a property.
        IF cardinality(steps) > 1 OR new IS NULL OR steps[1] NOT LIKE '.%' OR json_typeof(value) <> 'object' THEN RETURN value::text; END IF;
        RETURN regexp_replace(rtrim(value::text), '\s*\}$', '') || CASE WHEN EXISTS (SELECT FROM json_object_keys(value)) THEN ',' ELSE '' END
            || to_json(name)::text || ':' || CASE WHEN appends THEN '[' || new || ']' ELSE new END || '}';
    END IF;
    changed := tsql.json_changed(inner_value, steps[2:], is_strict, appends, new);
    IF json_typeof(value) = 'object' THEN
        RETURN (SELECT '{' || coalesce(string_agg(to_json(e.key)::text || ':' || CASE WHEN e.key = name THEN changed ELSE e.value::text END, ',' ORDER BY n), '') || '}'
            FROM json_each(value) WITH ORDINALITY AS e(key, value, n)
            WHERE NOT (e.key = name AND cardinality(steps) = 1 AND new IS NULL AND NOT is_strict AND NOT appends));
    END IF;
    RETURN (SELECT '[' || string_agg(CASE WHEN n - 1 = name::int THEN changed ELSE e.value::text END, ',' ORDER BY n) || ']'
        FROM json_array_elements(value) WITH ORDINALITY AS e(value, n));
END $$;
CREATE OR REPLACE FUNCTION tsql.json_modify(value text, path text, new text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value IS NOT NULL AND path IS NOT NULL
        THEN tsql.json_changed(tsql.json_text(value), steps[2:], steps[1] = 'strict', appends, new) END
    FROM (SELECT path ~ '^\s*append\s' AS appends, tsql.json_steps(regexp_replace(path, '^\s*append\s+', '')) AS steps) s $$;

-- OPENJSON without WITH: 0 null, 1 string, 2 number, 3 true or false, 4 array, 5 object.
CREATE OR REPLACE FUNCTION tsql.openjson(value text, path text DEFAULT '$') RETURNS TABLE (key text, item text, type int2)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE ROWS 10 AS $$
DECLARE found json := tsql.json_at(tsql.json_text(value), tsql.json_steps(path));
BEGIN
    IF json_typeof(found) = 'object' THEN
        RETURN QUERY SELECT e.key, e.value #>> '{}', tsql.json_kind(e.value) FROM json_each(found) e;
    ELSIF json_typeof(found) = 'array' THEN
        RETURN QUERY SELECT (e.n - 1)::text, e.value #>> '{}', tsql.json_kind(e.value) FROM json_array_elements(found) WITH ORDINALITY AS e(value, n);
    END IF;
END $$;
CREATE OR REPLACE FUNCTION tsql.json_kind(value json) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN array_position(ARRAY['null', 'string', 'number', 'boolean', 'array', 'object'], json_typeof(value))::int2 - 1::int2;
-- OPENJSON with WITH: the elements of an array, or the one object.
CREATE OR REPLACE FUNCTION tsql.openjson_rows(value text, path text DEFAULT '$') RETURNS SETOF json
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE ROWS 10 AS $$
DECLARE found json := tsql.json_at(tsql.json_text(value), tsql.json_steps(path));
BEGIN
    IF json_typeof(found) = 'array' THEN RETURN QUERY SELECT json_array_elements(found);
    ELSIF json_typeof(found) = 'object' THEN RETURN NEXT found;
    END IF;
END $$;
CREATE OR REPLACE FUNCTION tsql.json_field(value json, path text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT tsql.json_scalar(tsql.json_at(value, steps), steps[1] = 'strict') FROM (SELECT tsql.json_steps(path) AS steps) s $$;
CREATE OR REPLACE FUNCTION tsql.json_field_structure(value json, path text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT tsql.json_structure(tsql.json_at(value, steps), steps[1] = 'strict') FROM (SELECT tsql.json_steps(path) AS steps) s $$;

-- FOR XML: text between tags.
CREATE OR REPLACE FUNCTION tsql.xml_text(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(value, '&', '&amp;'), '<', '&lt;'), '>', '&gt;');
