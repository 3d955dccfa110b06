-- The names in braces are filled in, quoted, by warehouse.sweep; the values are bound.
-- No other session writes tombstones of the target meanwhile (warehouse.target_locks).
MERGE INTO floodmark.tombstones AS old
USING (
    SELECT {key} AS key
    FROM {target}
    WHERE {swept}
      AND NOT EXISTS (SELECT FROM {staging} WHERE {same_key})
      AND NOT EXISTS (
          SELECT FROM floodmark.quarantine AS q
          WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.window_id = %(window_id)s
            AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended({key}, 0) AND q.key = {key}
      )
) AS new
ON old.target_schema = %(target_schema)s AND old.target_name = %(target_name)s
    AND jsonb_hash_extended(old.key, 0) = jsonb_hash_extended(new.key, 0) AND old.key = new.key
WHEN MATCHED AND old.lsn < %(to_lsn)s THEN UPDATE SET lsn = %(to_lsn)s
WHEN NOT MATCHED THEN INSERT (target_schema, target_name, key, lsn)
    VALUES (%(target_schema)s, %(target_name)s, new.key, %(to_lsn)s)
