UPDATE floodmark.windows SET state = 'advanced', advanced_at = now() WHERE window_id = %(window_id)s
