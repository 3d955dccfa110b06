-- The name and definition of a table's primary key, where ALTER TABLE … ADD CONSTRAINT restores it as it was: no option
-- of its index and nothing that depends on it would be lost. Parameters: schema, name.
SELECT pg_constraint.conname, pg_get_constraintdef(pg_constraint.oid)
FROM pg_constraint
JOIN pg_class ON pg_class.oid = pg_constraint.conrelid
JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
JOIN pg_class AS key_index ON key_index.oid = pg_constraint.conindid
JOIN pg_index ON pg_index.indexrelid = pg_constraint.conindid
WHERE pg_namespace.nspname = %(schema)s AND pg_class.relname = %(name)s AND pg_constraint.contype = 'p'
  AND pg_class.relkind = 'r' AND NOT pg_class.relispartition
  AND key_index.reloptions IS NULL AND key_index.reltablespace = 0
  AND NOT pg_index.indisclustered AND NOT pg_index.indisreplident
  AND obj_description(pg_constraint.oid, 'pg_constraint') IS NULL
  AND obj_description(key_index.oid, 'pg_class') IS NULL
