SELECT window_id, attempt, state, plan
FROM floodmark.windows
WHERE window_id = %(window_id)s
FOR UPDATE
