SELECT source_schema, source_name, watermark, watermark_at, instance_name, instance_object_id, instance_created_at, consistent,
    read_lsn, read_lsn_at
FROM floodmark.tables
WHERE pipeline = %(pipeline)s
