UPDATE floodmark.drift_holds SET released_at = now(), released_by = %(by)s
WHERE event_id = %(event_id)s AND released_at IS NULL
