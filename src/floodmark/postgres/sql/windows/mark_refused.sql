-- Checked, and not passed: the state stays.
UPDATE floodmark.windows SET checked_at = now() WHERE window_id = %(window_id)s AND state = 'merged'
