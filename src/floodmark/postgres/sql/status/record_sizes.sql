UPDATE floodmark.window_tables AS x
SET change_rows = s.change_rows, change_bytes = s.change_bytes
FROM floodmark.tables AS t
JOIN unnest(%(source_schemas)s::text[], %(source_names)s::text[], %(change_rows)s::bigint[], %(change_bytes)s::bigint[])
    AS s (source_schema, source_name, change_rows, change_bytes) USING (source_schema, source_name)
WHERE t.pipeline = %(pipeline)s
  AND x.window_id = t.window_id AND x.source_schema = t.source_schema AND x.source_name = t.source_name
