SELECT window_id, lane, attempt, state, plan, to_lsn_at, checked_at
FROM floodmark.windows
WHERE pipeline = %(pipeline)s AND lane = %(lane)s AND state <> 'advanced'
