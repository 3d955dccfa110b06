UPDATE floodmark.alerts SET raised_to = %(channels)s WHERE alert_id = %(alert_id)s
