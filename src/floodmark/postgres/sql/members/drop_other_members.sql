-- A load of the whole table begins with the members that there are now.
DELETE FROM floodmark.members
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND member <> ALL (%(members)s::text[])
