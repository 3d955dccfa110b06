-- Once for each window, in the transaction that publishes it.
UPDATE floodmark.tables AS t
SET published_windows = t.published_windows + 1,
    read_rows = t.read_rows + x.read_rows,
    inserted_rows = t.inserted_rows + x.inserted_rows,
    updated_rows = t.updated_rows + x.updated_rows,
    deleted_rows = t.deleted_rows + x.deleted_rows,
    quarantined_rows = t.quarantined_rows + x.quarantined_rows,
    published_window_id = greatest(t.published_window_id, w.window_id),
    published_at = now()
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS x USING (window_id)
WHERE w.window_id = %(window_id)s
  AND t.pipeline = w.pipeline AND t.source_schema = x.source_schema AND t.source_name = x.source_name
