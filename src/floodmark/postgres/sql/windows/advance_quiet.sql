UPDATE floodmark.tables
SET watermark = %(to_lsn)s,
    watermark_at = %(to_lsn_at)s,
    consistent = consistent OR coalesce(%(to_lsn_at)s > first_load_finished_at, false),
    updated_at = now()
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND watermark = %(watermark)s
