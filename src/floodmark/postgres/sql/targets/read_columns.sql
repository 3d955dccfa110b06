SELECT a.attname,
    format_type(a.atttypid, a.atttypmod),
    NOT a.attnotnull OR a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '',
    a.attnum = ANY (coalesce(k.indkey::smallint[], '{}'))
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_index AS k ON k.indrelid = c.oid AND k.indisprimary
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
ORDER BY a.attnum
