UPDATE floodmark.windows SET plan = %(plan)s WHERE window_id = %(window_id)s
