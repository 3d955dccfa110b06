SELECT w.window_id, w.lane, x.kind, w.state, w.attempt, w.opened_at, w.merged_at, w.checked_at, w.advanced_at,
    w.to_lsn_at, x.read_rows, x.inserted_rows, x.updated_rows, x.deleted_rows, x.unchanged_rows, x.quarantined_rows,
    w.lag_seconds, x.margin_seconds, x.change_rows, x.change_bytes, w.dag_id, w.run_id
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS x USING (window_id)
WHERE w.pipeline = %(pipeline)s AND x.source_schema = %(source_schema)s AND x.source_name = %(source_name)s
ORDER BY w.window_id DESC
LIMIT %(at_most)s
