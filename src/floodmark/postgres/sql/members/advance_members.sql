-- Compare and set: a mark that is no longer the one that was read from stays, and the member is read from it again.
UPDATE floodmark.members AS m
SET mark = w.after_mark, window_id = w.window_id
FROM floodmark.window_members AS w
WHERE w.window_id = %(window_id)s
  AND w.source_schema = %(source_schema)s AND w.source_name = %(source_name)s
  AND m.pipeline = %(pipeline)s AND m.source_schema = w.source_schema AND m.source_name = w.source_name
  AND m.member = w.member AND m.mark IS NOT DISTINCT FROM w.before_mark
