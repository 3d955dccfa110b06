UPDATE floodmark.drift_events
SET approved_at = now(), approved_by = %(by)s, is_rejected = true
WHERE event_id = %(event_id)s AND approved_at IS NULL
RETURNING event_id
