SELECT target_window_id FROM floodmark.tables
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND target_window_id IS NOT NULL
