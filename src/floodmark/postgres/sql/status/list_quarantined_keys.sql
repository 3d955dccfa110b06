-- Of the values of a row only those of its key. Only for users who may see them.
SELECT rule, key, lsn, window_id, at
FROM floodmark.quarantine
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND settled_at IS NULL AND (%(rule)s::text IS NULL OR rule = %(rule)s)
ORDER BY quarantine_id DESC
LIMIT %(at_most)s OFFSET %(skipped)s
