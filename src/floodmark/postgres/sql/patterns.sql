-- name: list_pattern_tables
SELECT source_schema, source_name, pattern, state
FROM floodmark.pattern_tables
WHERE pipeline = %(pipeline)s
ORDER BY source_schema, source_name

-- name: has_pattern_tables
SELECT to_regclass('floodmark.pattern_tables') IS NOT NULL AS found

-- name: forget_pattern_tables
DELETE FROM floodmark.pattern_tables AS p
WHERE pipeline = %(pipeline)s
    AND NOT EXISTS (
        SELECT FROM unnest(%(source_schemas)s::text[], %(source_names)s::text[]) AS kept (source_schema, source_name)
        WHERE kept.source_schema = p.source_schema AND kept.source_name = p.source_name
    )

-- name: record_pattern_tables
INSERT INTO floodmark.pattern_tables (pipeline, source_schema, source_name, pattern, state)
SELECT %(pipeline)s, source_schema, source_name, pattern, state
FROM unnest(%(source_schemas)s::text[], %(source_names)s::text[], %(patterns)s::text[], %(states)s::text[])
    AS listed (source_schema, source_name, pattern, state)
ON CONFLICT (pipeline, source_schema, source_name) DO UPDATE
SET pattern = excluded.pattern, state = excluded.state
