-- name: list_users_of_view
-- What would be lost with a view, or keeps it from being dropped: the views that read it, its triggers, rules and
-- defaults, and what uses its row type. Parameters: schema, name.
SELECT DISTINCT CASE
    WHEN r.ev_class <> c.oid THEN (
        SELECT reader_space.nspname || '.' || reader.relname
        FROM pg_catalog.pg_class AS reader
        JOIN pg_catalog.pg_namespace AS reader_space ON reader_space.oid = reader.relnamespace
        WHERE reader.oid = r.ev_class
    )
    ELSE pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
END
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_type AS row_type ON row_type.oid = c.reltype
JOIN pg_catalog.pg_depend AS d ON (d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid)
    OR (d.refclassid = 'pg_type'::regclass AND d.refobjid IN (row_type.oid, row_type.typarray))
LEFT JOIN pg_catalog.pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
  AND d.deptype <> 'i' AND (r.ev_class = c.oid AND r.rulename = '_RETURN') IS NOT TRUE
ORDER BY 1

-- name: read_views
-- The relation that has the name of the view of each target, whatever it is; and the views with the mark that read the
-- target, whatever they are called. Parameters: schemas and names of targets, names of their views, the mark.
SELECT wanted.schema_name AS target_schema, wanted.table_name AS target_name,
    n.nspname, c.relname, c.relkind::text, marked.is_own,
    EXISTS (
        SELECT FROM pg_catalog.pg_depend AS d
        JOIN pg_catalog.pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        WHERE r.ev_class = c.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid
    ) AS reads_target,
    ARRAY (
        SELECT ARRAY[a.attname::text, format_type(a.atttypid, a.atttypmod)]
        FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attnum
    ) AS columns,
    pg_get_userbyid(c.relowner) AS owner,
    ARRAY (SELECT ARRAY[option_name, option_value] FROM pg_options_to_table(c.reloptions)) AS options,
    ARRAY (
        SELECT ARRAY[coalesce(a.attname, '')::text, comment.description]
        FROM pg_catalog.pg_description AS comment
        LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = nullif(comment.objsubid, 0)
        WHERE comment.classoid = 'pg_class'::regclass AND comment.objoid = c.oid
    ) AS comments,
    ARRAY (
        SELECT ARRAY[
            CASE WHEN granted.grantee <> 0 THEN pg_get_userbyid(granted.grantee)::text END,
            granted.privilege_type,
            granted.attname::text,
            CASE WHEN granted.is_grantable THEN 'grantable' END
        ]
        FROM (
            SELECT NULL AS attname, of_view.*
            FROM aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS of_view
            UNION ALL
            SELECT a.attname, of_column.*
            FROM pg_catalog.pg_attribute AS a, aclexplode(a.attacl) AS of_column
            WHERE a.attrelid = c.oid AND NOT a.attisdropped
        ) AS granted
    ) AS grants,
    CASE c.relkind WHEN 'v' THEN (regexp_match(pg_get_viewdef(c.oid), 'make_date\((\d+, \d+, \d+)\)'))[1] END AS open_end
FROM unnest(%(schemas)s::text[], %(names)s::text[], %(views)s::text[]) AS wanted (schema_name, table_name, view_name)
JOIN pg_catalog.pg_namespace AS target_space ON target_space.nspname = wanted.schema_name
LEFT JOIN pg_catalog.pg_class AS t ON t.relnamespace = target_space.oid AND t.relname = wanted.table_name
CROSS JOIN LATERAL (
    SELECT named.oid, true AS has_name
    FROM pg_catalog.pg_class AS named
    WHERE named.relnamespace = target_space.oid AND named.relname = wanted.view_name
    UNION
    SELECT r.ev_class, false
    FROM pg_catalog.pg_depend AS d
    JOIN pg_catalog.pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid
) AS found
JOIN pg_catalog.pg_class AS c ON c.oid = found.oid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT c.relkind = 'v' AND coalesce(strpos(obj_description(c.oid, 'pg_class'), %(mark)s) > 0, false) AS is_own
) AS marked
WHERE found.has_name OR marked.is_own
ORDER BY found.has_name, c.oid
