SELECT window_id, lane, attempt, state, plan, to_lsn_at, checked_at
FROM floodmark.windows
WHERE window_id = %(window_id)s
