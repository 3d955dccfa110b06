SELECT event_id, kind, column_name, before, after, is_captured, obstacle
FROM floodmark.drift_events
WHERE source = %(source)s AND instance_name = %(instance_name)s AND instance_object_id = %(instance_object_id)s
  AND instance_created_at = %(instance_created_at)s AND ddl_lsn IS NULL AND column_name IS NOT NULL
FOR UPDATE
