-- name: count_staged
-- About how many rows staging tables have, without reading them: PostgreSQL's counters have the rows of finished
-- transactions, soon after their end, and the progress of COPY has the rows of those that are running.
SELECT c.relname, pg_catalog.pg_stat_get_live_tuples(c.oid) AS rows,
    coalesce((
        SELECT sum(p.tuples_processed)
        FROM pg_catalog.pg_stat_progress_copy AS p
        WHERE p.relid = c.oid AND p.datname = current_database()
    ), 0)::bigint AS unfinished_rows
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = ANY(%(names)s)

-- name: estimate_rows
-- About how many rows a target has: by the counters, which a crash empties, or by the last ANALYZE (-1 before the first).
SELECT coalesce(
    nullif(pg_catalog.pg_stat_get_live_tuples(c.oid), 0), nullif(c.reltuples, -1)::bigint
) AS rows
FROM pg_catalog.pg_class AS c
WHERE c.oid = to_regclass(%(target)s)

-- name: has_deleted_row
-- Whether the target has a row as it was before it was deleted. The names in braces are filled in, quoted.
SELECT EXISTS (
    SELECT FROM floodmark.tombstones AS d
    JOIN {target} ON jsonb_hash_extended(d.key, 0) = jsonb_hash_extended({key}, 0) AND d.key = {key}
    WHERE d.target_schema = %(target_schema)s AND d.target_name = %(target_name)s AND d.lsn > t.__lsn
)

-- name: has_merged
-- Whether a window of a pipeline has merged rows of a table.
SELECT w.window_id FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.window_id = %(window_id)s AND w.pipeline = %(pipeline)s AND w.state IN ('merged', 'checked', 'advanced')
  AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s

-- name: has_written_target
SELECT target_window_id FROM floodmark.tables
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND target_window_id IS NOT NULL

-- name: keep_target_mark
-- The rows were compared: the target is the one that the ledger means, in another file.
UPDATE floodmark.tables AS t SET target_mark = m.mark
FROM floodmark.target_marks AS m
WHERE m.pipeline = t.pipeline AND m.source_schema = t.source_schema AND m.source_name = t.source_name
  AND t.pipeline = %(pipeline)s AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s

-- name: list_staging
-- The staging tables of a window, and those left over from windows that are finished or given up: the process that had
-- to drop them was killed, or another session still used them.
SELECT tablename
FROM pg_catalog.pg_tables
WHERE schemaname = %(schema)s
  AND (
      starts_with(tablename::text, %(prefix)s)
      OR (
          tablename ~ '^w[0-9]+_'
          AND NOT EXISTS (
              SELECT FROM floodmark.windows AS w
              WHERE starts_with(tablename::text, 'w' || w.window_id || '_') AND w.state <> 'advanced'
          )
      )
  )

-- name: list_derived
-- The columns of some names, with whether the warehouse computes them, and their comments. Parameters: target, names.
SELECT a.attname, a.attgenerated <> '', coalesce(col_description(a.attrelid, a.attnum), '')
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid = %(target)s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY (%(names)s)

-- name: list_users_of_column
-- What depends on a column, but its own expression. Parameters: target, column.
SELECT DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid)
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid
    AND d.refobjsubid = a.attnum AND d.classid <> 'pg_attrdef'::regclass
WHERE a.attrelid = %(target)s::regclass AND a.attname = %(column)s AND NOT a.attisdropped
ORDER BY 1

-- name: list_views_of_column
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

-- name: read_columns
SELECT n.nspname,
    c.relname,
    a.attname,
    format_type(a.atttypid, a.atttypmod),
    NOT a.attnotnull OR a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '',
    a.attnum = ANY (coalesce(k.indkey::smallint[], '{}')),
    a.attgenerated <> ''
FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS wanted (schema_name, table_name)
JOIN pg_catalog.pg_namespace AS n ON n.nspname = wanted.schema_name
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = wanted.table_name
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_index AS k ON k.indrelid = c.oid AND k.indisprimary
ORDER BY c.oid, a.attnum

-- name: read_plain_primary_key
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

-- name: read_primary_key
-- The name of a table's primary key, as PostgreSQL stores it. Parameters: schema, name.
SELECT pg_constraint.conname
FROM pg_constraint
JOIN pg_class ON pg_class.oid = pg_constraint.conrelid
JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = %(schema)s AND pg_class.relname = %(name)s AND pg_constraint.contype = 'p'

-- name: read_relation
-- The kind of a relation, and whether the user may change its columns. Parameters: schema, name.
SELECT c.relkind IN ('r', 'p') AND NOT c.relispartition AS is_table, pg_has_role(c.relowner, 'USAGE') AS is_owned
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s

-- name: record_targets
-- In the transaction of a merge. targets: has_written: some row of the target has the window's number now. is_replaced: no
-- row has another one.
UPDATE floodmark.tables AS t
SET target_mark = m.mark, target_columns = r.columns,
    target_window_id = CASE WHEN r.has_written THEN %(window_id)s::bigint
        WHEN NOT r.is_replaced THEN t.target_window_id END
FROM floodmark.target_marks AS m
JOIN jsonb_to_recordset(%(targets)s::jsonb) AS r (
    source_schema text, source_name text, columns text[], has_written boolean, is_replaced boolean
) ON r.source_schema = m.source_schema AND r.source_name = m.source_name
WHERE m.pipeline = t.pipeline AND m.source_schema = t.source_schema AND m.source_name = t.source_name
  AND t.pipeline = %(pipeline)s

-- name: record_definitions
-- In the transaction in which targets get rows by them. tables: names: of columns, by those of the source; NULL for the
-- same. is_whole: a load of the whole table, which may give all columns others.
-- Any other window adds names and settings of columns: its plan may be older than that of the last one which was merged.
UPDATE floodmark.tables AS t
SET column_names = CASE WHEN r.is_whole THEN r.names
        ELSE coalesce(t.column_names || r.names, r.names, t.column_names) END,
    definition = CASE WHEN r.is_whole THEN r.definition
        ELSE coalesce((
            -- A ledger of an older version lacks the fingerprint of a column's secret.
            SELECT jsonb_object_agg(key,
                jsonb_strip_nulls(jsonb_build_object('fingerprint', r.definition -> key -> 'fingerprint')) || value)
            FROM jsonb_each(r.definition || t.definition)
        ), r.definition) END
FROM jsonb_to_recordset(%(tables)s::jsonb) AS r (
    source_schema text, source_name text, names jsonb, definition jsonb, is_whole boolean
)
WHERE t.pipeline = %(pipeline)s AND t.source_schema = r.source_schema AND t.source_name = r.source_name

-- name: missing_rights
-- What the user of the session may not do with relations, each by its schema and name: where one is to be created, the name
-- is that of no relation. Without INSERT and UPDATE a table cannot be written, nor without DELETE where rows are deleted;
-- only its owner may add columns.
SELECT current_user, current_database(), w.schema, w.name,
    CASE
        WHEN n.oid IS NULL THEN 'new schema'
        WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN 'usage'
        WHEN c.oid IS NULL THEN 'new table'
        WHEN NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
            AND has_table_privilege(c.oid, 'UPDATE')) THEN 'write'
        WHEN w.deletes AND NOT has_table_privilege(c.oid, 'DELETE') THEN 'delete'
        ELSE 'owner'
    END AS missing
FROM unnest(%(schemas)s::text[], %(names)s::text[], %(deletes)s::boolean[]) AS w (schema, name, deletes)
LEFT JOIN pg_namespace AS n ON n.nspname = w.schema
LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.name
WHERE CASE
        WHEN n.oid IS NULL THEN NOT has_database_privilege(current_database(), 'CREATE')
        WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN true
        WHEN c.oid IS NULL THEN NOT has_schema_privilege(n.oid, 'CREATE')
        ELSE NOT pg_has_role(c.relowner, 'USAGE')
    END
ORDER BY w.schema, w.name
