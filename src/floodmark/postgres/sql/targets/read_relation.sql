-- The kind of a relation, and whether the user may change its columns. Parameters: schema, name.
SELECT c.relkind IN ('r', 'p') AND NOT c.relispartition AS is_table, pg_has_role(c.relowner, 'USAGE') AS is_owned
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
