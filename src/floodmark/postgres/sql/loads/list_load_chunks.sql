SELECT chunk_no, after_bound, to_bound, CASE WHEN state = 'staged' THEN rows END AS staged_rows
FROM floodmark.load_chunks
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
ORDER BY chunk_no
