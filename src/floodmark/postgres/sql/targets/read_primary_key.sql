-- The name of a table's primary key, as PostgreSQL stores it. Parameters: schema, name.
SELECT pg_constraint.conname
FROM pg_constraint
JOIN pg_class ON pg_class.oid = pg_constraint.conrelid
JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = %(schema)s AND pg_class.relname = %(name)s AND pg_constraint.contype = 'p'
