SELECT source_schema, source_name, read_rows, staged_rows, inserted_rows, updated_rows, deleted_rows, unchanged_rows,
    quarantined_rows, warned_rows, swept_rows
FROM floodmark.window_tables
WHERE window_id = %(window_id)s
