UPDATE floodmark.drift_events SET ddl = %(ddl)s, ddl_lsn = %(ddl_lsn)s WHERE event_id = %(event_id)s
