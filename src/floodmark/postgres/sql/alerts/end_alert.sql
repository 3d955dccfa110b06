-- The newest alert of the event whose end has not been sent to all channels; locked until the transaction ends.
UPDATE floodmark.alerts
SET ended_at = coalesce(ended_at, now()), outcome = CASE WHEN ended_at IS NULL THEN %(outcome)s ELSE outcome END
WHERE alert_id = (
    SELECT alert_id FROM floodmark.alerts
    WHERE event_key = %(event_key)s AND parts = '{}' AND (ended_at IS NULL OR NOT ended_to @> raised_to)
    ORDER BY alert_id DESC
    LIMIT 1
    FOR UPDATE
)
RETURNING alert_id, event_key, kind, subject, source_schema, source_name, what, place, since, means, advice,
    raised_at, raised_to, ended_at, ended_to, outcome
