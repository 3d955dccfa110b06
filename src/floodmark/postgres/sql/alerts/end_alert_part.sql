UPDATE floodmark.alerts
SET parts = array_remove(parts, %(part)s::text)
WHERE kind = %(kind)s AND subject = %(subject)s AND ended_at IS NULL AND %(part)s::text = ANY (parts)
RETURNING event_key, cardinality(parts) AS left
