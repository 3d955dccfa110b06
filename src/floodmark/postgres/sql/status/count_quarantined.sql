SELECT rule, count(*) AS rows, max(at) AS last_at
FROM floodmark.quarantine
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
GROUP BY rule
ORDER BY last_at DESC, rule
LIMIT %(at_most)s
