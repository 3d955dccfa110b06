-- The tables of unfinished windows of other lanes that will move their watermarks. Replays never do.
SELECT w.window_id, w.lane, t.source_schema, t.source_name
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.state <> 'advanced' AND w.lane <> %(lane)s AND NOT starts_with(w.lane, 'replay ')
ORDER BY w.window_id, t.source_schema, t.source_name
