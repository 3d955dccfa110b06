UPDATE floodmark.windows SET state = 'merged', merged_at = now() WHERE window_id = %(window_id)s
