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
