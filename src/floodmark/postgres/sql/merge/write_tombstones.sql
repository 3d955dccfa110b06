-- The names in braces are filled in, quoted, by warehouse.warehouse; the values are bound.
INSERT INTO floodmark.tombstones AS old (target_schema, target_name, key, lsn)
SELECT %(target_schema)s, %(target_name)s, {key}, s.__lsn
FROM {staging}
WHERE s.__op = 1
ON CONFLICT (target_schema, target_name, jsonb_hash_extended(key, 0), jsonb_hash_extended(key, 1))
DO UPDATE SET lsn = excluded.lsn WHERE excluded.lsn > old.lsn
