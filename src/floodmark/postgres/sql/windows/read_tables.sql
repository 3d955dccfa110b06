SELECT t.source_schema, t.source_name, t.watermark, t.watermark_at, t.instance_name, t.instance_object_id,
    t.instance_created_at, t.consistent, t.read_lsn, t.read_lsn_at,
    d.server_name, d.database_name, d.database_guid, d.group_database_id
FROM floodmark.tables AS t
LEFT JOIN floodmark.followed_databases AS d USING (pipeline)
WHERE t.pipeline = %(pipeline)s
