SELECT outcome, rule, count(*) AS rows
FROM floodmark.quarantine
WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND (settled_at IS NULL OR settled_at = now())
GROUP BY outcome, rule ORDER BY outcome, rule
