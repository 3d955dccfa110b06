UPDATE floodmark.drift_holds SET released_at = now(), released_by = %(by)s
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND released_at IS NULL
RETURNING event_id
