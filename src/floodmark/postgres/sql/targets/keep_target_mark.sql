-- The rows were compared: the target is the one that the ledger means, in another file.
UPDATE floodmark.tables AS t SET target_mark = m.mark
FROM floodmark.target_marks AS m
WHERE m.pipeline = t.pipeline AND m.source_schema = t.source_schema AND m.source_name = t.source_name
  AND t.pipeline = %(pipeline)s AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
