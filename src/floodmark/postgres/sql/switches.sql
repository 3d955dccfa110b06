-- name: finish_switch
UPDATE floodmark.instance_switches SET state = %(state)s, finished_at = now() WHERE switch_id = %(switch_id)s

-- name: list_switches
-- The switches in progress, or the one with the given id.
SELECT s.*,
    coalesce(
        (
            SELECT jsonb_agg(
                jsonb_build_object(
                    'pipeline', p.pipeline, 'watermark', '0x' || upper(encode(p.watermark, 'hex')),
                    'window_id', p.window_id, 'window_state', w.state
                )
                ORDER BY p.pipeline
            )
            FROM floodmark.switched_pipelines AS p
            LEFT JOIN floodmark.windows AS w ON w.window_id = p.window_id
            WHERE p.switch_id = s.switch_id
        ),
        '[]'
    ) AS pipelines
FROM floodmark.instance_switches AS s
WHERE s.source = %(source)s
  AND CASE WHEN %(switch_id)s::bigint IS NULL THEN s.state IN ('approved', 'made') ELSE s.switch_id = %(switch_id)s END
ORDER BY s.switch_id

-- name: mark_switch_made
-- The name is kept when the instance is gone again: another one is created under it.
UPDATE floodmark.instance_switches
SET state = %(state)s, new_name = coalesce(%(new_name)s, new_name), new_object_id = %(new_object_id)s,
    new_created_at = %(new_created_at)s, made_at = CASE WHEN %(new_object_id)s::integer IS NULL THEN NULL ELSE now() END
WHERE switch_id = %(switch_id)s AND state IN ('approved', 'made')

-- name: open_switch
INSERT INTO floodmark.instance_switches (source, source_schema, source_name, old_name, old_object_id, old_created_at,
    new_name, added, columns, enabling, drops, since_lsn, approved_by)
VALUES (%(source)s, %(source_schema)s, %(source_name)s, %(old_name)s, %(old_object_id)s, %(old_created_at)s,
    %(new_name)s, %(added)s, %(columns)s, %(enabling)s, %(drops)s, %(since_lsn)s, %(by)s)
RETURNING switch_id

-- name: record_backfill
UPDATE floodmark.switched_pipelines SET window_id = %(window_id)s
WHERE switch_id = %(switch_id)s AND pipeline = %(pipeline)s

-- name: reopen_drift_events
-- The events that a given-up switch was to resolve: the operator has to decide again, and is notified again.
UPDATE floodmark.drift_events AS e
SET approved_at = NULL, approved_by = NULL, told_at = NULL
FROM floodmark.instance_switches AS s
WHERE s.switch_id = %(switch_id)s AND e.source = s.source
  -- Pipelines may spell the table in other case than the source does.
  AND lower(e.source_schema) = lower(s.source_schema) AND lower(e.source_name) = lower(s.source_name)
  AND e.kind = 'column_added' AND e.column_name = ANY(s.added) AND NOT e.is_rejected

-- name: switch_pipeline
-- Compare and set: the table's row is locked, so that no window is opened meanwhile.
WITH gone AS (
    UPDATE floodmark.tables AS t
    SET instance_name = s.new_name, instance_object_id = s.new_object_id, instance_created_at = s.new_created_at,
        updated_at = now()
    FROM floodmark.instance_switches AS s
    WHERE s.switch_id = %(switch_id)s AND s.state = 'made'
      AND t.pipeline = %(pipeline)s AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
      AND (t.instance_name, t.instance_object_id, t.instance_created_at)
          = (s.old_name, s.old_object_id, s.old_created_at)
      AND t.watermark >= %(least_watermark)s
      AND NOT EXISTS (
          SELECT FROM floodmark.windows AS w
          JOIN floodmark.window_tables AS wt USING (window_id)
          WHERE w.pipeline = t.pipeline AND w.state <> 'advanced'
            AND wt.source_schema = t.source_schema AND wt.source_name = t.source_name
      )
    RETURNING s.switch_id, t.pipeline, t.watermark
)
INSERT INTO floodmark.switched_pipelines (switch_id, pipeline, watermark)
SELECT switch_id, pipeline, watermark FROM gone
RETURNING pipeline
