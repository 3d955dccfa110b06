-- The last verdicts that leave a table out, except for tables that are being reloaded, or that a load or a window has
-- published since: a step that refused a table may have been repeated.
SELECT v.source_schema, v.source_name, v.verdict, v.cause, v.hint, v.watermark, v.min_lsn, v.max_lsn
FROM floodmark.verdicts AS v
WHERE v.pipeline = %(pipeline)s AND v.verdict = ANY (%(stops)s)
  AND NOT EXISTS (
    SELECT FROM floodmark.windows AS w
    JOIN floodmark.window_tables AS x USING (window_id)
    WHERE w.pipeline = v.pipeline
      AND x.source_schema = v.source_schema AND x.source_name = v.source_name
      AND ((starts_with(w.lane, 'load ') AND w.state <> 'advanced')
        OR ((w.lane = '' OR starts_with(w.lane, 'load ')) AND w.advanced_at > v.seen_at))
  )
ORDER BY v.source_schema, v.source_name
