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
