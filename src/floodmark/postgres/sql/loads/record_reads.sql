UPDATE floodmark.window_tables
SET read_rows = %(read_rows)s, read_finished_at = %(read_finished_at)s, read_lsn = %(read_lsn)s,
    read_lsn_at = %(read_lsn_at)s
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
