UPDATE floodmark.window_tables
SET staged_rows = %(staged_rows)s, inserted_rows = %(inserted_rows)s, updated_rows = %(updated_rows)s,
    deleted_rows = %(deleted_rows)s, unchanged_rows = %(unchanged_rows)s, quarantined_rows = %(quarantined_rows)s,
    warned_rows = %(warned_rows)s, swept_rows = %(swept_rows)s
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
RETURNING read_rows
