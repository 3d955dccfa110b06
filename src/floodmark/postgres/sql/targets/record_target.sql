-- In the transaction of a merge. has_written: some row of the target has the window's number now.
UPDATE floodmark.tables AS t
SET target_mark = m.mark, target_columns = %(columns)s::text[],
    target_window_id = CASE WHEN %(has_written)s THEN %(window_id)s::bigint ELSE t.target_window_id END
FROM floodmark.target_marks AS m
WHERE m.pipeline = t.pipeline AND m.source_schema = t.source_schema AND m.source_name = t.source_name
  AND t.pipeline = %(pipeline)s AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
