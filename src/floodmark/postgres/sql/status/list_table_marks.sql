SELECT t.source_schema, t.source_name, t.watermark, t.watermark_at, v.verdict
FROM floodmark.tables AS t
LEFT JOIN floodmark.verdicts AS v USING (pipeline, source_schema, source_name)
WHERE t.pipeline = %(pipeline)s
ORDER BY t.source_schema, t.source_name
