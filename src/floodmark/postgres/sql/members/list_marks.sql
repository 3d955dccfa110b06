SELECT source_schema, source_name, member, mark
FROM floodmark.members
WHERE pipeline = %(pipeline)s
ORDER BY source_schema, source_name, member
