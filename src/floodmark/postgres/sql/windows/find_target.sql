SELECT pipeline, source_schema, source_name
FROM floodmark.tables
WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s
