-- The events that a given-up switch was to resolve: the operator has to decide again, and is notified again.
UPDATE floodmark.drift_events AS e
SET approved_at = NULL, approved_by = NULL, told_at = NULL
FROM floodmark.instance_switches AS s
WHERE s.switch_id = %(switch_id)s AND e.source = s.source
  -- Pipelines may spell the table in other case than the source does.
  AND lower(e.source_schema) = lower(s.source_schema) AND lower(e.source_name) = lower(s.source_name)
  AND e.kind = 'column_added' AND e.column_name = ANY(s.added) AND NOT e.is_rejected
