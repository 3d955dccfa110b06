SELECT verdict, cause, found_at, repaired_at
FROM floodmark.gaps
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
ORDER BY gap_id DESC
LIMIT %(at_most)s
