-- No row: another process holds the alert and delivers it.
SELECT alert_id, event_key, kind, subject, source_schema, source_name, what, place, since, means, advice,
    raised_at, raised_to, ended_at, ended_to, outcome
FROM floodmark.alerts
WHERE alert_id = %(alert_id)s
FOR UPDATE SKIP LOCKED
