UPDATE floodmark.gaps
SET repaired_at = now(), window_id = %(window_id)s
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND repaired_at IS NULL
