-- name: add_totals
-- Once for each window, in the transaction that publishes it.
UPDATE floodmark.tables AS t
SET published_windows = t.published_windows + 1,
    read_rows = t.read_rows + x.read_rows,
    inserted_rows = t.inserted_rows + x.inserted_rows,
    updated_rows = t.updated_rows + x.updated_rows,
    deleted_rows = t.deleted_rows + x.deleted_rows,
    quarantined_rows = t.quarantined_rows + x.quarantined_rows,
    published_window_id = greatest(t.published_window_id, w.window_id),
    published_at = now()
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS x USING (window_id)
WHERE w.window_id = %(window_id)s
  AND t.pipeline = w.pipeline AND t.source_schema = x.source_schema AND t.source_name = x.source_name

-- name: advance_quiet
-- The rows are locked.
UPDATE floodmark.tables
SET watermark = %(to_lsn)s,
    watermark_at = %(to_lsn_at)s,
    consistent = consistent OR coalesce(
        %(to_lsn_at)s > first_load_finished_at, first_load_finished_at IS NULL AND %(to_lsn)s >= read_lsn, false
    ),
    updated_at = now()
WHERE pipeline = %(pipeline)s
  AND (source_schema, source_name) IN (SELECT * FROM unnest(%(source_schemas)s::text[], %(source_names)s::text[]))

-- name: advance_table
-- Compare and set: no row is touched unless the watermark is the one the window was planned on.
UPDATE floodmark.tables AS t
SET watermark = w.to_lsn,
    watermark_at = w.to_lsn_at,
    instance_name = %(instance_name)s,
    instance_object_id = %(instance_object_id)s,
    instance_created_at = %(instance_created_at)s,
    instance_store_id = %(instance_store_id)s,
    first_load_finished_at = CASE WHEN wt.kind = 'first_load' OR t.watermark IS NULL THEN wt.read_finished_at ELSE t.first_load_finished_at END,
    read_lsn = CASE WHEN wt.kind = 'first_load' OR t.watermark IS NULL THEN wt.read_lsn ELSE t.read_lsn END,
    read_lsn_at = CASE WHEN wt.kind = 'first_load' OR t.watermark IS NULL THEN wt.read_lsn_at ELSE t.read_lsn_at END,
    consistent = CASE
        WHEN wt.kind = 'first_load' OR t.watermark IS NULL THEN coalesce(wt.read_finished_at IS NULL AND w.to_lsn >= wt.read_lsn, false)
        ELSE t.consistent OR coalesce(
            w.to_lsn_at > t.first_load_finished_at, t.first_load_finished_at IS NULL AND w.to_lsn >= t.read_lsn, false
        )
    END,
    window_id = w.window_id,
    updated_at = now()
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS wt USING (window_id)
WHERE w.window_id = %(window_id)s
  AND wt.source_schema = %(source_schema)s AND wt.source_name = %(source_name)s
  AND t.pipeline = w.pipeline AND t.source_schema = wt.source_schema AND t.source_name = wt.source_name
  AND t.watermark IS NOT DISTINCT FROM %(watermark)s

-- name: begin_load
UPDATE floodmark.windows SET attempt = attempt + 1 WHERE window_id = %(window_id)s
RETURNING attempt

-- name: delete_old_windows
-- Some of the oldest published windows of a pipeline. Others are kept whatever their age: the newest of each table, and
-- the loads of whole tables, before which no change of a table is merged again.
DELETE FROM floodmark.windows
WHERE window_id IN (
    SELECT w.window_id
    FROM floodmark.windows AS w
    WHERE w.pipeline = %(pipeline)s AND w.state = 'advanced'
      AND w.advanced_at < now() - make_interval(secs => %(keep_seconds)s)
      AND NOT EXISTS (
          SELECT FROM floodmark.tables AS t
          WHERE t.pipeline = w.pipeline AND w.window_id IN (t.window_id, t.published_window_id)
      )
      AND NOT EXISTS (
          SELECT FROM floodmark.window_tables AS x WHERE x.window_id = w.window_id AND x.kind = 'first_load'
      )
    ORDER BY w.advanced_at
    LIMIT %(at_most)s
)

-- name: drop_merged_window
DELETE FROM floodmark.windows WHERE window_id = %(window_id)s AND state = 'merged'

-- name: drop_window
DELETE FROM floodmark.windows WHERE window_id = %(window_id)s AND state = 'planned'

-- name: find_target
SELECT pipeline, source_schema, source_name
FROM floodmark.tables
WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s

-- name: leave_out_table
DELETE FROM floodmark.window_tables
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s

-- name: list_left_instances
-- The instances from which a pipeline has switched to others.
SELECT s.old_name, s.old_object_id, s.old_created_at, s.new_name
FROM floodmark.switched_pipelines AS p
JOIN floodmark.instance_switches AS s USING (switch_id)
WHERE p.pipeline = %(pipeline)s
ORDER BY s.switch_id

-- name: list_other_lanes
-- The tables of unfinished windows of other lanes that will move their watermarks. Replays never do.
SELECT w.window_id, w.lane, t.source_schema, t.source_name
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.state <> 'advanced' AND w.lane <> %(lane)s AND NOT starts_with(w.lane, 'replay ')
ORDER BY w.window_id, t.source_schema, t.source_name

-- name: list_unfinished
SELECT window_id, lane, attempt, state, plan, to_lsn_at, checked_at
FROM floodmark.windows
WHERE pipeline = %(pipeline)s AND state <> 'advanced'
ORDER BY window_id

-- name: load_holder
SELECT coalesce(host(a.client_addr), 'this machine') AS client, a.backend_start AS since
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.database = (
    SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()
)
  AND l.classid = %(classid)s AND l.objid = %(objid)s AND l.objsubid = 2

-- name: lock_pipeline
SELECT source_schema, source_name FROM floodmark.tables
WHERE pipeline = %(pipeline)s
ORDER BY source_schema, source_name
FOR UPDATE

-- name: lock_table
SELECT watermark, target_schema, target_name
FROM floodmark.tables
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
FOR UPDATE

-- name: lock_tables
-- The order is that in which all runs lock tables: by code points, in any collation of the database.
SELECT source_schema, source_name, watermark
FROM floodmark.tables
WHERE pipeline = %(pipeline)s
  AND (source_schema, source_name) IN (SELECT * FROM unnest(%(source_schemas)s::text[], %(source_names)s::text[]))
ORDER BY source_schema COLLATE "C", source_name COLLATE "C"
FOR UPDATE

-- name: lock_window
SELECT window_id, lane, attempt, state, plan, to_lsn_at, checked_at
FROM floodmark.windows
WHERE window_id = %(window_id)s
FOR UPDATE

-- name: mark_advanced
UPDATE floodmark.windows
SET state = 'advanced', advanced_at = now(), lag_seconds = lag_seconds + extract(epoch FROM now() - opened_at)
WHERE window_id = %(window_id)s

-- name: mark_checked
UPDATE floodmark.windows SET state = 'checked', checked_at = now() WHERE window_id = %(window_id)s

-- name: mark_merged
UPDATE floodmark.windows SET state = 'merged', merged_at = now() WHERE window_id = %(window_id)s

-- name: mark_refused
-- Checked, and not passed: the state stays.
UPDATE floodmark.windows SET checked_at = now() WHERE window_id = %(window_id)s AND state = 'merged'

-- name: newer_load
-- A load of all rows of the table that was merged, and that was planned after the given window.
SELECT w.window_id, w.to_lsn
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.window_id > %(window_id)s AND w.state <> 'planned' AND t.kind = 'first_load'
  AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
  AND NOT EXISTS (
      SELECT FROM jsonb_array_elements(w.plan -> 'tables') AS planned
      WHERE planned -> 'source' = jsonb_build_array(t.source_schema, t.source_name)
        AND coalesce(planned ->> 'where', '') <> ''
  )
ORDER BY w.window_id DESC
LIMIT 1

-- name: open_window
INSERT INTO floodmark.windows (pipeline, lane, to_lsn, to_lsn_at, lag_seconds, plan)
VALUES (%(pipeline)s, %(lane)s, %(to_lsn)s, %(to_lsn_at)s, %(lag_seconds)s, '{}')
RETURNING window_id

-- name: open_window_table
INSERT INTO floodmark.window_tables (window_id, source_schema, source_name, kind, after_lsn, margin_seconds)
VALUES (%(window_id)s, %(source_schema)s, %(source_name)s, %(kind)s, %(after_lsn)s, %(margin_seconds)s)

-- name: read_counts
SELECT source_schema, source_name, read_rows, staged_rows, inserted_rows, updated_rows, deleted_rows, unchanged_rows,
    quarantined_rows, warned_rows, swept_rows
FROM floodmark.window_tables
WHERE window_id = %(window_id)s

-- name: read_tables
SELECT t.source_schema, t.source_name, t.watermark, t.watermark_at, t.instance_name, t.instance_object_id,
    t.instance_created_at, t.instance_store_id, t.consistent, t.read_lsn, t.read_lsn_at, t.column_names, t.definition,
    d.server_name, d.database_name, d.database_guid, d.group_database_id,
    t.target_schema, t.target_name, t.target_window_id, t.target_mark IS NOT NULL AND m.mark IS NULL AS is_without_target,
    t.target_mark IS NOT NULL AND m.mark <> t.target_mark AS is_other_target,
    array(SELECT * FROM unnest(t.target_columns) EXCEPT SELECT * FROM unnest(m.columns)) AS lost_columns
FROM floodmark.tables AS t
LEFT JOIN floodmark.followed_databases AS d USING (pipeline)
LEFT JOIN floodmark.target_marks AS m USING (pipeline, source_schema, source_name)
WHERE t.pipeline = %(pipeline)s

-- name: read_window
SELECT window_id, lane, attempt, state, plan, to_lsn_at, checked_at
FROM floodmark.windows
WHERE window_id = %(window_id)s

-- name: record_counts
UPDATE floodmark.window_tables
SET staged_rows = %(staged_rows)s, inserted_rows = %(inserted_rows)s, updated_rows = %(updated_rows)s,
    deleted_rows = %(deleted_rows)s, unchanged_rows = %(unchanged_rows)s, quarantined_rows = %(quarantined_rows)s,
    warned_rows = %(warned_rows)s, swept_rows = %(swept_rows)s
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
RETURNING read_rows

-- name: record_run
UPDATE floodmark.windows SET dag_id = %(dag_id)s, run_id = %(run_id)s WHERE window_id = %(window_id)s

-- name: record_unpublished_load
-- The target has the rows of a window that leaves the table out: they were read up to here. Until the watermark has
-- passed it, the server's net changes would omit rows that this window brought and that are deleted again.
UPDATE floodmark.tables AS t
SET read_lsn = coalesce(wt.read_lsn, w.to_lsn),
    read_lsn_at = CASE WHEN wt.read_lsn IS NULL THEN w.to_lsn_at ELSE wt.read_lsn_at END,
    consistent = false,
    updated_at = now()
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS wt USING (window_id)
WHERE w.window_id = %(window_id)s
  AND wt.source_schema = %(source_schema)s AND wt.source_name = %(source_name)s
  AND t.pipeline = w.pipeline AND t.source_schema = wt.source_schema AND t.source_name = wt.source_name

-- name: record_verdicts
INSERT INTO floodmark.verdicts AS known
    (pipeline, source_schema, source_name, verdict, cause, hint, watermark, min_lsn, max_lsn)
SELECT %(pipeline)s, found.*
FROM unnest(%(source_schemas)s::text[], %(source_names)s::text[], %(verdicts)s::text[], %(causes)s::text[],
    %(hints)s::text[], %(watermarks)s::bytea[], %(min_lsns)s::bytea[], %(max_lsns)s::bytea[]) AS found
ON CONFLICT (pipeline, source_schema, source_name) DO UPDATE SET
    verdict = excluded.verdict, cause = excluded.cause, hint = excluded.hint,
    watermark = excluded.watermark, min_lsn = excluded.min_lsn, max_lsn = excluded.max_lsn,
    since = CASE WHEN known.verdict = excluded.verdict THEN known.since ELSE now() END,
    seen_at = now()

-- name: register_table
INSERT INTO floodmark.tables (pipeline, source_schema, source_name, target_schema, target_name)
VALUES (%(pipeline)s, %(source_schema)s, %(source_name)s, %(target_schema)s, %(target_name)s)
ON CONFLICT (pipeline, source_schema, source_name) DO UPDATE
    SET target_schema = excluded.target_schema, target_name = excluded.target_name
    WHERE (tables.target_schema, tables.target_name) <> (excluded.target_schema, excluded.target_name)
      AND tables.watermark IS NULL

-- name: rename_plans
UPDATE floodmark.windows SET plan = jsonb_set(plan, '{pipeline}', to_jsonb(%(name)s::text)) WHERE pipeline = %(name)s

-- name: retarget_plans
-- Unfinished windows go on with the new name, and a release takes its plan from the newest window.
UPDATE floodmark.windows AS w
SET plan = jsonb_set(w.plan, '{tables}', (
    SELECT jsonb_agg(
        CASE WHEN planned -> 'source' = jsonb_build_array(%(source_schema)s::text, %(source_name)s::text)
            THEN jsonb_set(planned, '{target}', jsonb_build_array(%(target_schema)s::text, %(target_name)s::text))
            ELSE planned END
        ORDER BY place)
    FROM jsonb_array_elements(w.plan -> 'tables') WITH ORDINALITY AS t (planned, place)))
FROM floodmark.window_tables AS x
WHERE w.pipeline = %(pipeline)s AND x.window_id = w.window_id
  AND x.source_schema = %(source_schema)s AND x.source_name = %(source_name)s

-- name: seconds_since_change
-- How long ago the newest window was published that brought changes of a table, or loaded it as a whole.
SELECT extract(epoch FROM now() - w.advanced_at)::float8 AS seconds
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS x USING (window_id)
WHERE w.pipeline = %(pipeline)s AND x.source_schema = %(source_schema)s AND x.source_name = %(source_name)s
    AND w.state = 'advanced' AND (x.kind = 'first_load' OR x.read_rows > 0)
ORDER BY w.window_id DESC
LIMIT 1

-- name: store_plan
UPDATE floodmark.windows SET plan = %(plan)s WHERE window_id = %(window_id)s

-- name: unfinished_window
SELECT window_id, lane, attempt, state, plan, to_lsn_at, checked_at
FROM floodmark.windows
WHERE pipeline = %(pipeline)s AND lane = %(lane)s AND state <> 'advanced'
