-- The names in braces are filled in, quoted, by warehouse.sweep; the values are bound.
DELETE FROM {target}
WHERE {swept}
  AND NOT EXISTS (SELECT FROM {staging} WHERE {same_key})
  AND NOT EXISTS (
      SELECT FROM floodmark.quarantine AS q
      WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.window_id = %(window_id)s
        AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended({key}, 0) AND q.key = {key}
  )
