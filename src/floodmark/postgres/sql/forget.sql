-- name: analyze_ledger
-- The statistics of the ledger's tables have samples of keys and rows.
ANALYZE floodmark.tombstones, floodmark.quarantine, floodmark.load_chunks, floodmark.windows

-- name: clear_bounds
-- The bounds of the chunks of finished loads are keys, in the form of the source. No one reads them any more.
UPDATE floodmark.load_chunks AS c
SET after_bound = NULL, to_bound = NULL
FROM floodmark.windows AS w
WHERE w.window_id = c.window_id AND w.pipeline = %(pipeline)s
  AND c.source_schema = %(source_schema)s AND c.source_name = %(source_name)s
  AND (c.after_bound IS NOT NULL OR c.to_bound IS NOT NULL)

-- name: clear_conditions
-- The conditions of finished loads of some rows may have values of rows. That there was one still says that such a load
-- did not read the whole table.
UPDATE floodmark.windows AS w
SET plan = jsonb_set(w.plan, '{{tables}}', (
    SELECT jsonb_agg(
        CASE WHEN {has_condition} THEN jsonb_set(planned, '{{where}}', '"forgotten"') ELSE planned END ORDER BY place)
    FROM jsonb_array_elements(w.plan -> 'tables') WITH ORDINALITY AS t (planned, place)))
WHERE w.pipeline = %(pipeline)s
  AND EXISTS (SELECT FROM jsonb_array_elements(w.plan -> 'tables') AS planned WHERE {has_condition})

-- name: count_messages_of_table
SELECT count(*) AS messages
FROM floodmark.quarantined_messages
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND body IS NOT NULL

-- name: delete_forgotten
-- The names and conditions in braces are filled in, quoted, by warehouse.forget; the values are bound.
WITH gone AS (DELETE FROM {relation} WHERE {condition} RETURNING {window_id} AS window_id)
SELECT count(*), max(window_id) FROM gone

-- name: find_unfinished_window
-- The oldest unfinished window that has a table, on any lane.
SELECT w.window_id, w.lane
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.state <> 'advanced'
  AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
ORDER BY w.window_id
LIMIT 1

-- name: list_forgotten
-- Up to where the changes of tables are not merged again, since keys were forgotten there; nothing of a table that was
-- loaded as a whole since, from which on they are not either.
SELECT DISTINCT ON (f.source_schema, f.source_name) f.source_schema, f.source_name, f.lsn
FROM floodmark.forgotten AS f
WHERE f.pipeline = %(pipeline)s AND f.lsn IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM floodmark.windows AS w
      JOIN floodmark.window_tables AS t USING (window_id)
      WHERE w.pipeline = f.pipeline AND w.window_id > f.window_id AND w.state = 'advanced' AND t.kind = 'first_load'
        AND t.source_schema = f.source_schema AND t.source_name = f.source_name
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(w.plan -> 'tables') AS planned
            WHERE planned -> 'source' = jsonb_build_array(t.source_schema, t.source_name)
              AND coalesce(planned ->> 'where', '') <> ''
        )
  )
ORDER BY f.source_schema, f.source_name, f.forgotten_id DESC

-- name: list_left_staging
-- The staging tables of a table of the source that no unfinished window of another pipeline has.
SELECT tablename
FROM pg_catalog.pg_tables
WHERE schemaname = %(schema)s AND tablename ~ '^w[0-9]+_' AND right(tablename::text, length(%(suffix)s::text)) = %(suffix)s
  AND NOT EXISTS (
      SELECT FROM floodmark.windows AS w
      WHERE starts_with(tablename::text, 'w' || w.window_id || '_')
        AND w.pipeline <> %(pipeline)s AND w.state <> 'advanced'
  )

-- name: lower_target_window
-- The newest rows of the target may be those that were deleted: the highest number that it has now is compared with it.
UPDATE floodmark.tables
SET target_window_id = (SELECT max(t.__window_id) FROM {target} AS t)
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND target_window_id <= %(window_id)s

-- name: read_read_position
SELECT watermark, read_lsn
FROM floodmark.tables
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s

-- name: record_forgotten
INSERT INTO floodmark.forgotten
    (pipeline, source_schema, source_name, target_schema, target_name, lsn, window_id, forgotten_by, counts)
SELECT pipeline, source_schema, source_name, target_schema, target_name, watermark, coalesce(window_id, 0), %(by)s,
    %(counts)s
FROM floodmark.tables
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
RETURNING forgotten_id
