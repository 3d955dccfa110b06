UPDATE floodmark.drift_shapes
SET seen_at = now()
WHERE source = %(source)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND instance_name = %(instance_name)s
