SELECT t.source_schema, t.source_name, t.target_schema, t.target_name, t.watermark, t.watermark_at, t.consistent,
    v.verdict, v.cause, v.hint, v.since AS verdict_since, v.seen_at AS verdict_seen_at,
    t.published_windows AS windows, t.read_rows, t.inserted_rows, t.updated_rows, t.deleted_rows, t.quarantined_rows,
    t.published_at AS advanced_at,
    l.window_id AS last_window_id, l.read_rows AS last_read_rows, l.inserted_rows AS last_inserted_rows,
    l.updated_rows AS last_updated_rows, l.deleted_rows AS last_deleted_rows,
    l.quarantined_rows AS last_quarantined_rows
FROM floodmark.tables AS t
LEFT JOIN floodmark.verdicts AS v USING (pipeline, source_schema, source_name)
LEFT JOIN floodmark.window_tables AS l
    ON l.window_id = t.published_window_id AND l.source_schema = t.source_schema AND l.source_name = t.source_name
WHERE t.pipeline = %(pipeline)s
ORDER BY t.source_schema, t.source_name
