SELECT DISTINCT part
FROM floodmark.alerts, unnest(parts) AS part
WHERE kind = %(kind)s AND subject = %(subject)s AND ended_at IS NULL
ORDER BY part
