SELECT source_schema, source_name FROM floodmark.tables
WHERE pipeline = %(pipeline)s
ORDER BY source_schema, source_name
FOR UPDATE
