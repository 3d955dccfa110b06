SELECT shape, absent
FROM floodmark.drift_shapes
WHERE source = %(source)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND instance_name = %(instance_name)s
FOR UPDATE
