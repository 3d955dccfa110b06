UPDATE floodmark.windows SET dag_id = %(dag_id)s, run_id = %(run_id)s WHERE window_id = %(window_id)s
