SELECT e.event_id, e.source, e.source_schema, e.source_name, e.instance_name, e.instance_object_id,
    e.instance_created_at, e.kind, e.column_name, e.before, e.after, e.is_captured, e.obstacle, e.ddl, e.proposal,
    e.policies, e.found_at, e.told_at, e.approved_at, e.approved_by, e.is_rejected,
    ARRAY(
        SELECT h.pipeline FROM floodmark.drift_holds AS h
        WHERE h.event_id = e.event_id AND h.released_at IS NULL ORDER BY h.pipeline
    ) AS held
FROM floodmark.drift_events AS e
WHERE (%(source)s::text IS NULL OR e.source = %(source)s)
  AND (%(event_id)s::bigint IS NULL OR e.event_id = %(event_id)s)
ORDER BY e.event_id
