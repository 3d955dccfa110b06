-- The staging tables of a window, and those left over from windows that are finished or given up: the process that had
-- to drop them was killed, or another session still used them.
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
