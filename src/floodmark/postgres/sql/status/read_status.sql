SELECT t.source_schema, t.source_name, t.target_schema, t.target_name, t.watermark, t.watermark_at, t.consistent,
    v.verdict, v.cause, v.hint, v.since AS verdict_since, v.seen_at AS verdict_seen_at,
    coalesce(d.windows, 0) AS windows, coalesce(d.read_rows, 0) AS read_rows,
    coalesce(d.inserted_rows, 0) AS inserted_rows, coalesce(d.updated_rows, 0) AS updated_rows,
    coalesce(d.deleted_rows, 0) AS deleted_rows, coalesce(d.quarantined_rows, 0) AS quarantined_rows,
    d.advanced_at,
    l.window_id AS last_window_id, l.read_rows AS last_read_rows, l.inserted_rows AS last_inserted_rows,
    l.updated_rows AS last_updated_rows, l.deleted_rows AS last_deleted_rows,
    l.quarantined_rows AS last_quarantined_rows
FROM floodmark.tables AS t
LEFT JOIN floodmark.verdicts AS v USING (pipeline, source_schema, source_name)
LEFT JOIN (
    SELECT w.pipeline, x.source_schema, x.source_name, count(*) AS windows, max(w.advanced_at) AS advanced_at,
        max(w.window_id) AS last_window_id,
        sum(x.read_rows)::bigint AS read_rows, sum(x.inserted_rows)::bigint AS inserted_rows,
        sum(x.updated_rows)::bigint AS updated_rows, sum(x.deleted_rows)::bigint AS deleted_rows,
        sum(x.quarantined_rows)::bigint AS quarantined_rows
    FROM floodmark.windows AS w
    JOIN floodmark.window_tables AS x USING (window_id)
    WHERE w.state = 'advanced' AND w.pipeline = %(pipeline)s
      AND NOT starts_with(w.lane, 'replay ') AND NOT starts_with(w.lane, 'release ')
    GROUP BY w.pipeline, x.source_schema, x.source_name
) AS d USING (pipeline, source_schema, source_name)
LEFT JOIN floodmark.window_tables AS l
    ON l.window_id = d.last_window_id AND l.source_schema = t.source_schema AND l.source_name = t.source_name
WHERE t.pipeline = %(pipeline)s
ORDER BY t.source_schema, t.source_name
