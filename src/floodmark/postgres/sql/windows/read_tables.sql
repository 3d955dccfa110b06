SELECT t.source_schema, t.source_name, t.watermark, t.watermark_at, t.instance_name, t.instance_object_id,
    t.instance_created_at, t.instance_store_id, t.consistent, t.read_lsn, t.read_lsn_at,
    d.server_name, d.database_name, d.database_guid, d.group_database_id,
    t.target_schema, t.target_name, t.target_window_id, t.target_mark IS NOT NULL AND m.mark IS NULL AS is_without_target,
    t.target_mark IS NOT NULL AND m.mark <> t.target_mark AS is_other_target,
    array(SELECT * FROM unnest(t.target_columns) EXCEPT SELECT * FROM unnest(m.columns)) AS lost_columns
FROM floodmark.tables AS t
LEFT JOIN floodmark.followed_databases AS d USING (pipeline)
LEFT JOIN floodmark.target_marks AS m USING (pipeline, source_schema, source_name)
WHERE t.pipeline = %(pipeline)s
