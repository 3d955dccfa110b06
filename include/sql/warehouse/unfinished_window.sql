SELECT window_id, attempt, state, plan
FROM floodmark.windows
WHERE pipeline = %(pipeline)s AND state <> 'advanced'
