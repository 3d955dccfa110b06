-- The names in braces are filled in, quoted, by warehouse.release; the values are bound.
UPDATE floodmark.quarantine AS q
SET settled_at = now(), settled_by = %(by)s,
    outcome = CASE WHEN q.lsn = s.__lsn THEN 'released' ELSE 'overtaken' END
FROM {staging}
WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.settled_at IS NULL
  AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended({key}, 0) AND q.key = {key} AND q.lsn <= s.__lsn
