SELECT reason FROM floodmark.ended_stops WHERE source = %(source)s AND since = %(since)s
