-- Rows that are older than the newest load of the whole table, or than a settled row of the same key.
UPDATE floodmark.quarantine AS q
SET settled_at = now(), settled_by = %(by)s, outcome = 'overtaken'
WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.settled_at IS NULL
  AND (
      q.window_id < %(load_window_id)s
      OR EXISTS (
          SELECT FROM floodmark.quarantine AS n
          WHERE n.target_schema = q.target_schema AND n.target_name = q.target_name
            AND jsonb_hash_extended(n.key, 0) = jsonb_hash_extended(q.key, 0) AND n.key = q.key
            AND n.lsn > q.lsn AND n.settled_at IS NOT NULL
      )
  )
