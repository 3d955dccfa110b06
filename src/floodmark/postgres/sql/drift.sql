-- name: approve_drift_event
UPDATE floodmark.drift_events
SET approved_at = coalesce(approved_at, now()), approved_by = coalesce(approved_by, %(by)s)
WHERE event_id = %(event_id)s

-- name: end_drift_absence
SELECT event_id
FROM floodmark.drift_events
WHERE source = %(source)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND instance_name = %(instance_name)s AND kind = ANY(%(kinds)s) AND approved_at IS NULL
FOR UPDATE

-- name: explain_drift_event
UPDATE floodmark.drift_events SET ddl = %(ddl)s, ddl_lsn = %(ddl_lsn)s WHERE event_id = %(event_id)s

-- name: insert_drift_event
INSERT INTO floodmark.drift_events
    (source, source_schema, source_name, instance_name, instance_object_id, instance_created_at, kind, column_name,
    before, after, is_captured, obstacle, ddl, ddl_lsn, proposal, policies)
VALUES (%(source)s, %(source_schema)s, %(source_name)s, %(instance_name)s, %(instance_object_id)s,
    %(instance_created_at)s, %(kind)s, %(column_name)s, %(before)s, %(after)s, %(is_captured)s, %(obstacle)s, %(ddl)s,
    %(ddl_lsn)s, %(proposal)s, %(policies)s)
RETURNING event_id

-- name: insert_drift_hold
INSERT INTO floodmark.drift_holds (event_id, pipeline, source_schema, source_name)
VALUES (%(event_id)s, %(pipeline)s, %(source_schema)s, %(source_name)s)

-- name: insert_known_shape
INSERT INTO floodmark.drift_shapes (source, source_schema, source_name, instance_name, shape, absent)
VALUES (%(source)s, %(source_schema)s, %(source_name)s, %(instance_name)s, %(shape)s, %(absent)s)
ON CONFLICT DO NOTHING
RETURNING instance_name

-- name: list_drift_events
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

-- name: list_drift_holds
-- The oldest hold of a table first.
SELECT h.pipeline, h.source_schema, h.source_name, h.event_id, h.held_at,
    e.kind, e.column_name, e.before, e.after, e.is_captured
FROM floodmark.drift_holds AS h
JOIN floodmark.drift_events AS e USING (event_id)
WHERE h.pipeline = %(pipeline)s AND h.released_at IS NULL
ORDER BY h.held_at, h.event_id

-- name: list_unexplained_events
SELECT event_id, kind, column_name, before, after, is_captured, obstacle
FROM floodmark.drift_events
WHERE source = %(source)s AND instance_name = %(instance_name)s AND instance_object_id = %(instance_object_id)s
  AND instance_created_at = %(instance_created_at)s AND ddl_lsn IS NULL AND column_name IS NOT NULL
FOR UPDATE

-- name: lock_known_shape
SELECT shape, absent
FROM floodmark.drift_shapes
WHERE source = %(source)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND instance_name = %(instance_name)s
FOR UPDATE

-- name: mark_drift_reported
UPDATE floodmark.drift_events SET told_at = coalesce(told_at, now()) WHERE event_id = %(event_id)s

-- name: read_known_shapes
SELECT source_schema, source_name, instance_name, shape, absent,
    extract(epoch FROM now() - seen_at)::float8 AS age_seconds
FROM floodmark.drift_shapes
WHERE source = %(source)s

-- name: record_shape_unchanged
UPDATE floodmark.drift_shapes
SET seen_at = now()
WHERE source = %(source)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND instance_name = %(instance_name)s

-- name: reject_drift_event
UPDATE floodmark.drift_events
SET approved_at = now(), approved_by = %(by)s, is_rejected = true
WHERE event_id = %(event_id)s AND approved_at IS NULL
RETURNING event_id

-- name: release_event_holds
UPDATE floodmark.drift_holds SET released_at = now(), released_by = %(by)s
WHERE event_id = %(event_id)s AND released_at IS NULL

-- name: release_table_holds
UPDATE floodmark.drift_holds SET released_at = now(), released_by = %(by)s
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND released_at IS NULL
RETURNING event_id

-- name: replace_proposal
UPDATE floodmark.drift_events SET proposal = %(proposal)s WHERE event_id = %(event_id)s AND approved_at IS NULL

-- name: update_known_shape
UPDATE floodmark.drift_shapes
SET shape = %(shape)s, absent = %(absent)s, seen_at = now()
WHERE source = %(source)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND instance_name = %(instance_name)s
