-- name: drop_alert_parts
UPDATE floodmark.alerts SET parts = '{}' WHERE event_key = %(event_key)s AND ended_at IS NULL

-- name: end_alert
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

-- name: end_alert_part
UPDATE floodmark.alerts
SET parts = array_remove(parts, %(part)s::text)
WHERE kind = %(kind)s AND subject = %(subject)s AND ended_at IS NULL AND %(part)s::text = ANY (parts)
RETURNING event_key, cardinality(parts) AS left

-- name: end_alerts_of_pipeline
-- The next run under the new name raises those whose cause has not ended.
UPDATE floodmark.alerts SET ended_at = now() WHERE subject = %(pipeline)s AND ended_at IS NULL

-- name: list_alert_parts
SELECT DISTINCT part
FROM floodmark.alerts, unnest(parts) AS part
WHERE kind = %(kind)s AND subject = %(subject)s AND ended_at IS NULL
ORDER BY part

-- name: list_open_alerts
SELECT event_key, kind, subject, source_schema, source_name, what, place, since, means, advice, raised_at, seen_at, times
FROM floodmark.alerts
WHERE ended_at IS NULL
ORDER BY raised_at, alert_id

-- name: list_owed_alerts
-- The alerts of which a channel has not been notified yet, the oldest first. For a repeated event only the last one
-- counts.
SELECT a.alert_id, a.event_key, a.subject
FROM floodmark.alerts AS a
WHERE (a.ended_at IS NULL AND NOT a.raised_to @> %(channels)s::text[])
   OR (
        a.ended_at IS NOT NULL
        AND EXISTS (
            SELECT FROM unnest(a.raised_to) AS told (channel)
            WHERE channel = ANY (%(channels)s::text[]) AND channel <> ALL (a.ended_to)
        )
        AND NOT EXISTS (
            SELECT FROM floodmark.alerts AS b WHERE b.event_key = a.event_key AND b.alert_id > a.alert_id
        )
    )
ORDER BY a.alert_id

-- name: lock_alert
-- No row: another process holds the alert and delivers it.
SELECT alert_id, event_key, kind, subject, source_schema, source_name, what, place, since, means, advice,
    raised_at, raised_to, ended_at, ended_to, outcome
FROM floodmark.alerts
WHERE alert_id = %(alert_id)s
FOR UPDATE SKIP LOCKED

-- name: raise_alert
INSERT INTO floodmark.alerts AS a
    (event_key, kind, subject, source_schema, source_name, what, place, since, means, advice,
    parts)
VALUES (%(event_key)s, %(kind)s, %(subject)s, %(source_schema)s, %(source_name)s, %(what)s, %(place)s, %(since)s,
    %(means)s, %(advice)s, %(parts)s::text[])
ON CONFLICT (event_key) WHERE ended_at IS NULL
DO UPDATE SET what = excluded.what, means = excluded.means, advice = excluded.advice, seen_at = now(),
    times = a.times + 1,
    parts = CASE WHEN a.parts @> excluded.parts THEN a.parts ELSE a.parts || excluded.parts END
RETURNING alert_id, raised_at, raised_to

-- name: record_alert_ended
UPDATE floodmark.alerts SET ended_to = %(channels)s WHERE alert_id = %(alert_id)s

-- name: record_alert_raised
UPDATE floodmark.alerts SET raised_to = %(channels)s WHERE alert_id = %(alert_id)s
