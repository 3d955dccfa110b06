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
