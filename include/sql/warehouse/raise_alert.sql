INSERT INTO floodmark.alerts AS a
    (event_key, kind, subject, source_schema, source_name, what, place, since, means, advice)
VALUES (%(event_key)s, %(kind)s, %(subject)s, %(source_schema)s, %(source_name)s, %(what)s, %(place)s, %(since)s,
    %(means)s, %(advice)s)
ON CONFLICT (event_key) WHERE ended_at IS NULL
DO UPDATE SET what = excluded.what, means = excluded.means, advice = excluded.advice, seen_at = now(),
    times = a.times + 1
RETURNING alert_id, raised_at, raised_to
