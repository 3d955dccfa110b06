SELECT event_key, kind, subject, source_schema, source_name, what, place, since, means, advice, raised_at, seen_at, times
FROM floodmark.alerts
WHERE ended_at IS NULL
ORDER BY raised_at, alert_id
