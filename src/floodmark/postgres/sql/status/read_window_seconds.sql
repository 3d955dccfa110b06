SELECT extract(epoch FROM advanced_at - opened_at)::float8 AS seconds
FROM floodmark.windows
WHERE window_id = %(window_id)s AND advanced_at IS NOT NULL
