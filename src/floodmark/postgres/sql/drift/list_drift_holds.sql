-- The oldest hold of a table first.
SELECT h.pipeline, h.source_schema, h.source_name, h.event_id, h.held_at,
    e.kind, e.column_name, e.before, e.after, e.is_captured
FROM floodmark.drift_holds AS h
JOIN floodmark.drift_events AS e USING (event_id)
WHERE h.pipeline = %(pipeline)s AND h.released_at IS NULL
ORDER BY h.held_at, h.event_id
