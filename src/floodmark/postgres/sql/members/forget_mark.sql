UPDATE floodmark.members
SET mark = NULL, verdict = NULL, cause = '', hint = '', since = now()
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND member = %(member)s
