SELECT event_id
FROM floodmark.drift_events
WHERE source = %(source)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND instance_name = %(instance_name)s AND kind = ANY(%(kinds)s) AND approved_at IS NULL
FOR UPDATE
