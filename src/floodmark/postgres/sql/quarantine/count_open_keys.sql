SELECT count(DISTINCT key)
FROM floodmark.quarantine
WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND settled_at IS NULL
