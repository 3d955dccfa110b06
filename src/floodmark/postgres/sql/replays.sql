-- name: list_next_begins
-- For each table without a window around a position: where its next window begins. The ledger keeps a bounded history.
SELECT t.source_schema, t.source_name, min(t.after_lsn) AS after_lsn
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.lane = '' AND w.state <> 'planned' AND t.kind = 'changes'
  AND t.after_lsn >= %(lsn)s
  AND NOT EXISTS (
      SELECT FROM floodmark.windows AS around
      JOIN floodmark.window_tables AS x USING (window_id)
      WHERE around.pipeline = w.pipeline AND around.lane = '' AND around.state <> 'planned' AND x.kind = 'changes'
        AND x.source_schema = t.source_schema AND x.source_name = t.source_name
        AND x.after_lsn < %(lsn)s AND around.to_lsn >= %(lsn)s
  )
GROUP BY t.source_schema, t.source_name

-- name: list_server_net_ends
-- The end of the window that contains a position, for each table whose net changes the server computed in that window.
SELECT DISTINCT ON (t.source_schema, t.source_name) t.source_schema, t.source_name, w.to_lsn
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.lane = '' AND w.state <> 'planned' AND t.kind = 'changes'
  AND t.after_lsn < %(lsn)s AND w.to_lsn > %(lsn)s
  AND EXISTS (
      SELECT FROM jsonb_array_elements(w.plan -> 'tables') AS planned
      WHERE planned -> 'source' = jsonb_build_array(t.source_schema, t.source_name) AND planned ->> 'net' = 'server'
  )
ORDER BY t.source_schema, t.source_name, w.to_lsn DESC

-- name: list_whole_loads
-- The newest published load of all rows, for each table of a pipeline. Not the one with the highest LSN: after a
-- restore of the source, a later load has a lower LSN.
SELECT DISTINCT ON (t.source_schema, t.source_name) t.source_schema, t.source_name, w.window_id, w.to_lsn, w.to_lsn_at
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.state = 'advanced' AND t.kind = 'first_load'
  AND NOT EXISTS (
      SELECT FROM jsonb_array_elements(w.plan -> 'tables') AS planned
      WHERE planned -> 'source' = jsonb_build_array(t.source_schema, t.source_name)
        AND coalesce(planned ->> 'where', '') <> ''
  )
ORDER BY t.source_schema, t.source_name, w.window_id DESC
