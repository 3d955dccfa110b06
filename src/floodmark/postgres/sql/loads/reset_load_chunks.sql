UPDATE floodmark.load_chunks
SET state = 'planned', rows = NULL, staged_at = NULL, attempt = NULL
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND chunk_no = ANY(%(numbers)s)
