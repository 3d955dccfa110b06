UPDATE floodmark.windows SET to_lsn = %(to_lsn)s, to_lsn_at = %(to_lsn_at)s, plan = %(plan)s WHERE window_id = %(window_id)s
