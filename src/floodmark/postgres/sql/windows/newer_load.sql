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
