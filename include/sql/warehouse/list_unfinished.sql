SELECT window_id, lane, attempt, state, plan
FROM floodmark.windows
WHERE pipeline = %(pipeline)s AND state <> 'advanced'
ORDER BY window_id
