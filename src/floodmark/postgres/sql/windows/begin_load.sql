UPDATE floodmark.windows SET attempt = attempt + 1 WHERE window_id = %(window_id)s
RETURNING attempt
