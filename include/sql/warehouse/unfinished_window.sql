SELECT window_id, lane, attempt, state, plan
FROM floodmark.windows
WHERE pipeline = %(pipeline)s AND lane = %(lane)s AND state <> 'advanced'
