SELECT watermark, target_schema, target_name
FROM floodmark.tables
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
FOR UPDATE
