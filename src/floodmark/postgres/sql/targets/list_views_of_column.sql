-- The views, materialized or not, that use a column of a table. Parameters: schema, name, column.
SELECT DISTINCT view_space.nspname || '.' || view.relname
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
JOIN pg_catalog.pg_depend AS d ON d.refobjid = c.oid AND d.refobjsubid = a.attnum
    AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_rewrite'::regclass
JOIN pg_catalog.pg_rewrite AS r ON r.oid = d.objid
JOIN pg_catalog.pg_class AS view ON view.oid = r.ev_class
JOIN pg_catalog.pg_namespace AS view_space ON view_space.oid = view.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND a.attname = %(column)s
ORDER BY 1
