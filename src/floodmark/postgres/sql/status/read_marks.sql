-- The positions that cleanup must not pass: the watermarks of some pipelines, or the start of a running load. Each with
-- a window to compute its pace from: the newest that was published so many seconds ago or earlier, else the oldest.
-- Watermarks also move without a window; the pace is from that window until now.
SELECT t.pipeline, t.source_schema, t.source_name, coalesce(t.instance_name, '') AS instance_name,
    coalesce(u.to_lsn, t.watermark) AS lsn, CASE WHEN u.to_lsn IS NULL THEN t.watermark_at ELSE u.to_lsn_at END AS at,
    CASE WHEN u.to_lsn IS NULL THEN coalesce(o.to_lsn_at, r.to_lsn_at) END AS reference_at,
    extract(epoch FROM now() - coalesce(o.advanced_at, r.advanced_at))::float8 AS elapsed_seconds
FROM floodmark.tables AS t
LEFT JOIN LATERAL (
    SELECT w.to_lsn, w.to_lsn_at
    FROM floodmark.windows AS w
    JOIN floodmark.window_tables AS x USING (window_id)
    WHERE w.pipeline = t.pipeline AND w.state <> 'advanced' AND x.kind = 'first_load'
      AND x.source_schema = t.source_schema AND x.source_name = t.source_name
      -- A load of some rows does not move the watermark.
      AND NOT jsonb_path_exists(w.plan, '$.tables[*] ? (@.where != "")')
    ORDER BY w.to_lsn
    LIMIT 1
) AS u ON true
LEFT JOIN LATERAL (
    SELECT w.to_lsn_at, w.advanced_at
    FROM floodmark.windows AS w
    JOIN floodmark.window_tables AS x USING (window_id)
    WHERE w.pipeline = t.pipeline AND w.state = 'advanced' AND w.lane = ''
      AND w.advanced_at <= now() - make_interval(secs => %(over_seconds)s)
      AND x.source_schema = t.source_schema AND x.source_name = t.source_name
    ORDER BY w.advanced_at DESC
    LIMIT 1
) AS o ON true
LEFT JOIN LATERAL (
    SELECT w.to_lsn_at, w.advanced_at
    FROM floodmark.windows AS w
    JOIN floodmark.window_tables AS x USING (window_id)
    WHERE o.advanced_at IS NULL AND w.pipeline = t.pipeline AND w.state = 'advanced' AND w.lane = ''
      AND w.advanced_at > now() - make_interval(secs => %(over_seconds)s)
      AND x.source_schema = t.source_schema AND x.source_name = t.source_name
    ORDER BY w.advanced_at
    LIMIT 1
) AS r ON true
WHERE t.pipeline = ANY(%(pipelines)s) AND coalesce(u.to_lsn, t.watermark) IS NOT NULL
ORDER BY t.pipeline, t.source_schema, t.source_name
