-- Compare and set: no row is touched unless the watermark is the one the window was planned on.
UPDATE floodmark.tables AS t
SET watermark = w.to_lsn,
    watermark_at = w.to_lsn_at,
    instance_name = %(instance_name)s,
    instance_object_id = %(instance_object_id)s,
    instance_created_at = %(instance_created_at)s,
    instance_store_id = %(instance_store_id)s,
    first_load_finished_at = CASE WHEN wt.kind = 'first_load' OR t.watermark IS NULL THEN wt.read_finished_at ELSE t.first_load_finished_at END,
    read_lsn = CASE WHEN wt.kind = 'first_load' OR t.watermark IS NULL THEN wt.read_lsn ELSE t.read_lsn END,
    read_lsn_at = CASE WHEN wt.kind = 'first_load' OR t.watermark IS NULL THEN wt.read_lsn_at ELSE t.read_lsn_at END,
    consistent = CASE
        WHEN wt.kind = 'first_load' OR t.watermark IS NULL THEN coalesce(wt.read_finished_at IS NULL AND w.to_lsn >= wt.read_lsn, false)
        ELSE t.consistent OR coalesce(
            w.to_lsn_at > t.first_load_finished_at, t.first_load_finished_at IS NULL AND w.to_lsn >= t.read_lsn, false
        )
    END,
    window_id = w.window_id,
    updated_at = now()
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS wt USING (window_id)
WHERE w.window_id = %(window_id)s
  AND wt.source_schema = %(source_schema)s AND wt.source_name = %(source_name)s
  AND t.pipeline = w.pipeline AND t.source_schema = wt.source_schema AND t.source_name = wt.source_name
  AND t.watermark IS NOT DISTINCT FROM %(watermark)s
