-- Unfinished windows of other lanes that will move the table's watermark. Replays never do.
SELECT w.window_id, w.lane
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.state <> 'advanced' AND w.lane <> %(lane)s AND NOT starts_with(w.lane, 'replay ')
  AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
ORDER BY w.window_id
