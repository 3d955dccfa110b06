SELECT source_schema, source_name, rule, count(*) AS rows, max(at) AS last_at
FROM floodmark.quarantine
WHERE pipeline = %(pipeline)s AND settled_at IS NULL
GROUP BY source_schema, source_name, rule
ORDER BY last_at DESC, source_schema, source_name, rule
