SELECT source_schema, source_name, member, verdict, cause, hint
FROM floodmark.members
WHERE pipeline = %(pipeline)s AND verdict = ANY (%(stops)s)
ORDER BY source_schema, source_name, member
