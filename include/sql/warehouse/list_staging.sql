SELECT tablename
FROM pg_catalog.pg_tables
WHERE schemaname = %(schema)s AND starts_with(tablename::text, %(prefix)s)
