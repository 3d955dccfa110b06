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
