-- name: list_quarantined
-- The rows that wait, by rule: a row that broke a rule several times waits once.
SELECT source_schema, source_name, rule, count(DISTINCT key) AS rows, max(at) AS last_at
FROM floodmark.quarantine
WHERE pipeline = %(pipeline)s AND settled_at IS NULL
GROUP BY source_schema, source_name, rule
ORDER BY last_at DESC, source_schema, source_name, rule

-- name: list_quarantined_keys
-- Of the values of a row only those of its key, and of its entries for a rule the newest. Only for users who may see them.
SELECT rule, key, lsn, window_id, at
FROM (
    SELECT DISTINCT ON (rule, key) rule, key, lsn, window_id, at, quarantine_id
    FROM floodmark.quarantine
    WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
      AND settled_at IS NULL AND (%(rule)s::text IS NULL OR rule = %(rule)s)
    ORDER BY rule, key, quarantine_id DESC
) AS q
ORDER BY quarantine_id DESC
LIMIT %(at_most)s OFFSET %(skipped)s

-- name: list_readers
SELECT pipeline
FROM floodmark.tables
WHERE (instance_name, instance_object_id, instance_created_at)
    = (%(instance_name)s, %(instance_object_id)s, %(instance_created_at)s)
ORDER BY pipeline

-- name: list_table_gaps
SELECT verdict, cause, found_at, repaired_at
FROM floodmark.gaps
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
ORDER BY gap_id DESC
LIMIT %(at_most)s

-- name: list_table_marks
SELECT t.source_schema, t.source_name, t.watermark, t.watermark_at, v.verdict
FROM floodmark.tables AS t
LEFT JOIN floodmark.verdicts AS v USING (pipeline, source_schema, source_name)
WHERE t.pipeline = %(pipeline)s
ORDER BY t.source_schema, t.source_name

-- name: list_table_windows
SELECT w.window_id, w.lane, x.kind, w.state, w.attempt, w.opened_at, w.merged_at, w.checked_at, w.advanced_at,
    w.to_lsn_at, x.read_rows, x.inserted_rows, x.updated_rows, x.deleted_rows, x.unchanged_rows, x.quarantined_rows,
    w.lag_seconds, x.margin_seconds, x.change_rows, x.change_bytes, w.dag_id, w.run_id
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS x USING (window_id)
WHERE w.pipeline = %(pipeline)s AND x.source_schema = %(source_schema)s AND x.source_name = %(source_name)s
ORDER BY w.window_id DESC
LIMIT %(at_most)s

-- name: list_newest_plans
-- The newest merged window of each table of a pipeline, the oldest of them first.
SELECT window_id, lane, attempt, state, plan, to_lsn_at, checked_at
FROM floodmark.windows
WHERE window_id IN (
    SELECT max(w.window_id)
    FROM floodmark.windows AS w
    JOIN floodmark.window_tables AS t USING (window_id)
    WHERE w.pipeline = %(pipeline)s AND w.state <> 'planned'
    GROUP BY t.source_schema, t.source_name
)
ORDER BY window_id

-- name: read_ended_stop
SELECT reason FROM floodmark.ended_stops WHERE source = %(source)s AND since = %(since)s

-- name: read_marks
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

-- name: read_status
SELECT t.source_schema, t.source_name, t.target_schema, t.target_name, t.watermark, t.watermark_at, t.consistent,
    v.verdict, v.cause, v.hint, v.since AS verdict_since, v.seen_at AS verdict_seen_at, v.max_lsn AS verdict_newest,
    v.watermark AS verdict_watermark, t.published_windows AS windows, t.read_rows, t.inserted_rows, t.updated_rows, t.deleted_rows, t.quarantined_rows,
    t.published_at AS advanced_at,
    l.window_id AS last_window_id, l.read_rows AS last_read_rows, l.inserted_rows AS last_inserted_rows,
    l.updated_rows AS last_updated_rows, l.deleted_rows AS last_deleted_rows,
    l.quarantined_rows AS last_quarantined_rows, l.margin_seconds AS last_margin_seconds
FROM floodmark.tables AS t
LEFT JOIN floodmark.verdicts AS v USING (pipeline, source_schema, source_name)
LEFT JOIN floodmark.window_tables AS l
    ON l.window_id = t.published_window_id AND l.source_schema = t.source_schema AND l.source_name = t.source_name
WHERE t.pipeline = %(pipeline)s
ORDER BY t.source_schema, t.source_name

-- name: read_window_seconds
SELECT extract(epoch FROM advanced_at - opened_at)::float8 AS seconds
FROM floodmark.windows
WHERE window_id = %(window_id)s AND advanced_at IS NOT NULL

-- name: record_ended_stop
INSERT INTO floodmark.ended_stops (source, since, reason) VALUES (%(source)s, %(since)s, %(reason)s)
ON CONFLICT (source, since) DO NOTHING

-- name: record_sizes
UPDATE floodmark.window_tables AS x
SET change_rows = s.change_rows, change_bytes = s.change_bytes
FROM floodmark.tables AS t
JOIN unnest(%(source_schemas)s::text[], %(source_names)s::text[], %(change_rows)s::bigint[], %(change_bytes)s::bigint[])
    AS s (source_schema, source_name, change_rows, change_bytes) USING (source_schema, source_name)
WHERE t.pipeline = %(pipeline)s
  AND x.window_id = t.window_id AND x.source_schema = t.source_schema AND x.source_name = t.source_name
