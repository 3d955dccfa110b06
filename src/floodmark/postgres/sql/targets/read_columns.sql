SELECT n.nspname,
    c.relname,
    a.attname,
    format_type(a.atttypid, a.atttypmod),
    NOT a.attnotnull OR a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '',
    a.attnum = ANY (coalesce(k.indkey::smallint[], '{}'))
FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS wanted (schema_name, table_name)
JOIN pg_catalog.pg_namespace AS n ON n.nspname = wanted.schema_name
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = wanted.table_name
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_index AS k ON k.indrelid = c.oid AND k.indisprimary
ORDER BY c.oid, a.attnum
