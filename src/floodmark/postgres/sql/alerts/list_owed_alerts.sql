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
