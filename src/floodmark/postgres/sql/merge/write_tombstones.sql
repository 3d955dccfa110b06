-- The names in braces are filled in, quoted, by warehouse.warehouse; the values are bound.
-- No other session writes tombstones of the target meanwhile (warehouse.target_locks).
MERGE INTO floodmark.tombstones AS old
USING (SELECT {key} AS key, s.__lsn AS lsn FROM {staging} WHERE s.__op = 1) AS new
ON old.target_schema = %(target_schema)s AND old.target_name = %(target_name)s
    AND jsonb_hash_extended(old.key, 0) = jsonb_hash_extended(new.key, 0) AND old.key = new.key
WHEN MATCHED AND old.lsn < new.lsn THEN UPDATE SET lsn = new.lsn
WHEN NOT MATCHED THEN INSERT (target_schema, target_name, key, lsn)
    VALUES (%(target_schema)s, %(target_name)s, new.key, new.lsn)
