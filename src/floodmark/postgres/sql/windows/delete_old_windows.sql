-- Some of the oldest published windows of a pipeline. Others are kept whatever their age: the newest of each table, and
-- the loads of whole tables, before which no change of a table is merged again.
DELETE FROM floodmark.windows
WHERE window_id IN (
    SELECT w.window_id
    FROM floodmark.windows AS w
    WHERE w.pipeline = %(pipeline)s AND w.state = 'advanced'
      AND w.advanced_at < now() - make_interval(secs => %(keep_seconds)s)
      AND NOT EXISTS (
          SELECT FROM floodmark.tables AS t
          WHERE t.pipeline = w.pipeline AND w.window_id IN (t.window_id, t.published_window_id)
      )
      AND NOT EXISTS (
          SELECT FROM floodmark.window_tables AS x WHERE x.window_id = w.window_id AND x.kind = 'first_load'
      )
    ORDER BY w.advanced_at
    LIMIT %(at_most)s
)
