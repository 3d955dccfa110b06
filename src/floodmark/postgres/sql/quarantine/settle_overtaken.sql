-- The names in braces are filled in, quoted, by warehouse.release; the values are bound.
WITH lost AS (
    DELETE FROM {staging}
    WHERE EXISTS (SELECT FROM {target} WHERE {same_key} AND t.__lsn > s.__lsn)
       OR EXISTS (
           SELECT FROM floodmark.tombstones AS d
           WHERE d.target_schema = %(target_schema)s AND d.target_name = %(target_name)s
             AND jsonb_hash_extended(d.key, 0) = jsonb_hash_extended({key}, 0) AND d.key = {key} AND d.lsn > s.__lsn
       )
    RETURNING {key} AS key, s.__lsn AS lsn
)
UPDATE floodmark.quarantine AS q
SET settled_at = now(), settled_by = %(by)s, outcome = 'overtaken'
FROM lost
WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.settled_at IS NULL
  AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended(lost.key, 0) AND q.key = lost.key AND q.lsn <= lost.lsn
