-- How long ago the newest window was published that brought changes of a table, or loaded it as a whole.
SELECT extract(epoch FROM now() - w.advanced_at)::float8 AS seconds
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS x USING (window_id)
WHERE w.pipeline = %(pipeline)s AND x.source_schema = %(source_schema)s AND x.source_name = %(source_name)s
    AND w.state = 'advanced' AND (x.kind = 'first_load' OR x.read_rows > 0)
ORDER BY w.window_id DESC
LIMIT 1
