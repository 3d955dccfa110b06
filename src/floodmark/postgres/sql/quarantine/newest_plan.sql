-- The newest merged window with a table in it.
SELECT w.window_id, w.lane, w.attempt, w.state, w.plan, w.to_lsn_at, w.checked_at
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.state <> 'planned'
  AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
ORDER BY w.window_id DESC
LIMIT 1
