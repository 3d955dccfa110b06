-- name: close_gap
UPDATE floodmark.gaps
SET repaired_at = now(), window_id = %(window_id)s
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND repaired_at IS NULL

-- name: delete_load_chunks
DELETE FROM floodmark.load_chunks
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s

-- name: extend_window
UPDATE floodmark.windows SET to_lsn = %(to_lsn)s, to_lsn_at = %(to_lsn_at)s, plan = %(plan)s WHERE window_id = %(window_id)s

-- name: fence_load
-- The window's row stays locked until the transaction ends, so that no later attempt begins meanwhile.
SELECT attempt, state FROM floodmark.windows WHERE window_id = {window_id} FOR SHARE

-- name: insert_load_chunk
INSERT INTO floodmark.load_chunks (window_id, source_schema, source_name, chunk_no, after_bound, to_bound)
VALUES (%(window_id)s, %(source_schema)s, %(source_name)s, %(chunk_no)s, %(after_bound)s, %(to_bound)s)

-- name: list_load_chunks
SELECT chunk_no, after_bound, to_bound, CASE WHEN state = 'staged' THEN rows END AS staged_rows
FROM floodmark.load_chunks
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
ORDER BY chunk_no

-- name: list_stopped
-- The last verdicts that leave a table out, except for tables that are being reloaded, or that a load or a window has
-- published since: a step that refused a table may have been repeated.
SELECT v.source_schema, v.source_name, v.verdict, v.cause, v.hint, v.watermark, v.min_lsn, v.max_lsn
FROM floodmark.verdicts AS v
WHERE v.pipeline = %(pipeline)s AND v.verdict = ANY (%(stops)s)
  AND NOT EXISTS (
    SELECT FROM floodmark.windows AS w
    JOIN floodmark.window_tables AS x USING (window_id)
    WHERE w.pipeline = v.pipeline
      AND x.source_schema = v.source_schema AND x.source_name = v.source_name
      AND ((starts_with(w.lane, 'load ') AND w.state <> 'advanced')
        OR ((w.lane = '' OR starts_with(w.lane, 'load ')) AND w.advanced_at > v.seen_at))
  )
ORDER BY v.source_schema, v.source_name

-- name: read_load_progress
SELECT source_schema, source_name, count(*) AS chunks, count(*) FILTER (WHERE state = 'staged') AS staged_chunks,
    coalesce(sum(rows) FILTER (WHERE state = 'staged'), 0)::bigint AS rows
FROM floodmark.load_chunks
WHERE window_id = %(window_id)s
GROUP BY source_schema, source_name

-- name: record_gap
-- For a known gap, the time when it was found is kept and its end moves on. No row is written where the watermark has
-- moved since the check: a load has closed the gap.
INSERT INTO floodmark.gaps AS known
    (pipeline, source_schema, source_name, verdict, cause, after_lsn, to_lsn, after_at, to_at)
SELECT t.pipeline, t.source_schema, t.source_name, %(verdict)s, %(cause)s, %(after_lsn)s::bytea, %(to_lsn)s::bytea,
    %(after_at)s::timestamp, %(to_at)s::timestamp
FROM floodmark.tables AS t
WHERE t.pipeline = %(pipeline)s AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
  AND t.watermark IS NOT DISTINCT FROM %(watermark)s::bytea
ON CONFLICT (pipeline, source_schema, source_name) WHERE repaired_at IS NULL DO UPDATE
    SET to_lsn = excluded.to_lsn, to_at = excluded.to_at
    WHERE known.verdict = excluded.verdict AND known.to_lsn < excluded.to_lsn

-- name: record_load_chunk
-- A chunk that a warehouse with a database of its own has staged.
UPDATE floodmark.load_chunks
SET state = 'staged', rows = %(rows)s, staged_at = now(), attempt = %(attempt)s
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND chunk_no = %(chunk_no)s

-- name: record_reads
UPDATE floodmark.window_tables
SET read_rows = %(read_rows)s, read_finished_at = %(read_finished_at)s, read_lsn = %(read_lsn)s,
    read_lsn_at = %(read_lsn_at)s
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s

-- name: reset_load_chunks
UPDATE floodmark.load_chunks
SET state = 'planned', rows = NULL, staged_at = NULL, attempt = NULL
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND chunk_no = ANY(%(numbers)s)

-- name: settle_table
-- Rows were read from the table, not from its changes: they may be ahead of the watermark, which does not move.
UPDATE floodmark.tables AS t
SET first_load_finished_at = greatest(t.first_load_finished_at, wt.read_finished_at), consistent = false,
    read_lsn = wt.read_lsn, read_lsn_at = wt.read_lsn_at, updated_at = now()
FROM floodmark.window_tables AS wt
WHERE wt.window_id = %(window_id)s
  AND wt.source_schema = %(source_schema)s AND wt.source_name = %(source_name)s
  AND t.pipeline = %(pipeline)s AND t.source_schema = wt.source_schema AND t.source_name = wt.source_name

-- name: stage_load_chunk
-- In the transaction that brings the chunk's rows. The values in braces are filled in, quoted, by warehouse.sink.
UPDATE floodmark.load_chunks
SET state = 'staged', rows = {rows}, staged_at = now(), attempt = {attempt}
WHERE window_id = {window_id} AND source_schema = {source_schema} AND source_name = {source_name}
  AND chunk_no = {chunk_no} AND state = 'planned'
RETURNING chunk_no
