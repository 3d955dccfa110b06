INSERT INTO floodmark.ended_stops (source, since, reason) VALUES (%(source)s, %(since)s, %(reason)s)
ON CONFLICT (source, since) DO NOTHING
