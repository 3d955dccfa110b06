UPDATE floodmark.drift_events SET proposal = %(proposal)s WHERE event_id = %(event_id)s AND approved_at IS NULL
