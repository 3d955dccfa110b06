-- The names in braces are filled in, quoted, by warehouse.sweep; the values are bound.
INSERT INTO floodmark.tombstones AS old (target_schema, target_name, key, lsn)
SELECT %(target_schema)s, %(target_name)s, {key}, %(to_lsn)s
FROM {target}
WHERE NOT EXISTS (SELECT FROM {staging} WHERE {same_key})
  AND NOT EXISTS (
      SELECT FROM floodmark.quarantine AS q
      WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.key = {key}
        AND q.window_id = %(window_id)s
  )
ON CONFLICT (target_schema, target_name, key) DO UPDATE SET lsn = excluded.lsn WHERE excluded.lsn > old.lsn
