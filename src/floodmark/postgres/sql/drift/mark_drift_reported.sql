UPDATE floodmark.drift_events SET told_at = coalesce(told_at, now()) WHERE event_id = %(event_id)s
