UPDATE floodmark.drift_events
SET approved_at = coalesce(approved_at, now()), approved_by = coalesce(approved_by, %(by)s)
WHERE event_id = %(event_id)s
