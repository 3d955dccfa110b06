-- The staging tables of a window, and what is left of windows that are finished or given up: whoever was to drop it was
-- killed, or met somebody who still used it.
SELECT tablename
FROM pg_catalog.pg_tables
WHERE schemaname = %(schema)s
  AND (
      starts_with(tablename::text, %(prefix)s)
      OR (
          tablename ~ '^w[0-9]+_'
          AND NOT EXISTS (
              SELECT FROM floodmark.windows AS w
              WHERE starts_with(tablename::text, 'w' || w.window_id || '_') AND w.state <> 'advanced'
          )
      )
  )
