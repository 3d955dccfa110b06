-- The rows are locked.
UPDATE floodmark.tables
SET watermark = %(to_lsn)s,
    watermark_at = %(to_lsn_at)s,
    consistent = consistent OR coalesce(
        %(to_lsn_at)s > first_load_finished_at, first_load_finished_at IS NULL AND %(to_lsn)s >= read_lsn, false
    ),
    updated_at = now()
WHERE pipeline = %(pipeline)s
  AND (source_schema, source_name) IN (SELECT * FROM unnest(%(source_schemas)s::text[], %(source_names)s::text[]))
