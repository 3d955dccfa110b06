UPDATE floodmark.quarantine
SET settled_at = now(), settled_by = %(by)s, outcome = 'discarded'
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND settled_at IS NULL AND (%(rule)s::text IS NULL OR rule = %(rule)s)
