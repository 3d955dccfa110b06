UPDATE floodmark.windows
SET state = 'advanced', advanced_at = now(), lag_seconds = lag_seconds + extract(epoch FROM now() - opened_at)
WHERE window_id = %(window_id)s
