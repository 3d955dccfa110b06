UPDATE floodmark.windows SET state = 'checked', checked_at = now() WHERE window_id = %(window_id)s
