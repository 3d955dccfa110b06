-- Rows were read from the table, not from its changes: they may be ahead of the watermark, which does not move.
UPDATE floodmark.tables AS t
SET first_load_finished_at = greatest(t.first_load_finished_at, wt.read_finished_at), consistent = false,
    read_lsn = wt.read_lsn, read_lsn_at = wt.read_lsn_at, updated_at = now()
FROM floodmark.window_tables AS wt
WHERE wt.window_id = %(window_id)s
  AND wt.source_schema = %(source_schema)s AND wt.source_name = %(source_name)s
  AND t.pipeline = %(pipeline)s AND t.source_schema = wt.source_schema AND t.source_name = wt.source_name
