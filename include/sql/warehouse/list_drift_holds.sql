SELECT h.pipeline, h.source_schema, h.source_name, h.event_id, h.held_at
FROM floodmark.drift_holds AS h
WHERE h.pipeline = %(pipeline)s AND h.released_at IS NULL
ORDER BY h.held_at, h.event_id
