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
