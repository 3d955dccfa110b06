-- A chunk that a warehouse with a database of its own has staged.
UPDATE floodmark.load_chunks
SET state = 'staged', rows = %(rows)s, staged_at = now(), attempt = %(attempt)s
WHERE window_id = %(window_id)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND chunk_no = %(chunk_no)s
