UPDATE floodmark.alerts SET ended_to = %(channels)s WHERE alert_id = %(alert_id)s
