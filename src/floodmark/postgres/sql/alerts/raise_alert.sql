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
