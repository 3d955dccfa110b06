DELETE FROM floodmark.windows WHERE window_id = %(window_id)s AND state = 'merged'
