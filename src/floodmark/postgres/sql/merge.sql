-- name: drop_duplicates
-- Leave one row of each key in a staging table. Placeholders: staging and the columns of the key, quoted.
DELETE FROM {staging} AS twin
USING (SELECT ctid, row_number() OVER (PARTITION BY {key}) AS number FROM {staging}) AS counted
WHERE twin.ctid = counted.ctid AND counted.number > 1

-- name: drop_set_aside
-- The names in braces are filled in, quoted, by warehouse.gate; the values are bound.
DELETE FROM {staging}
WHERE s.__op <> 1 AND ({leaves_out})
  AND NOT EXISTS (SELECT FROM {target} WHERE {same_key})
  AND EXISTS (
      SELECT FROM floodmark.quarantine AS q
      WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s
        AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended({key}, 0) AND q.key = {key}
        AND q.lsn > s.__lsn AND (q.settled_at IS NULL OR q.outcome = 'discarded')
  )

-- name: find_leftovers
-- For each table, in the order of the arrays. In the list of a SELECT, each question is one for an index, however large
-- the tables of the ledger are.
SELECT
    EXISTS (
        SELECT FROM floodmark.tombstones AS d
        WHERE d.target_schema = t.target_schema AND d.target_name = t.target_name AND d.lsn > t.above_lsn
    ) AS has_tombstones,
    EXISTS (
        SELECT FROM floodmark.quarantine AS q
        WHERE q.target_schema = t.target_schema AND q.target_name = t.target_name
    ) AS has_quarantine,
    EXISTS (
        SELECT FROM floodmark.quarantine AS q
        WHERE q.pipeline = %(pipeline)s AND q.source_schema = t.source_schema AND q.source_name = t.source_name
          AND q.settled_at IS NULL
    ) AS has_waiting
FROM unnest(
    %(source_schemas)s::text[], %(source_names)s::text[], %(target_schemas)s::text[], %(target_names)s::text[],
    %(above_lsns)s::bytea[]
) WITH ORDINALITY AS t (source_schema, source_name, target_schema, target_name, above_lsn, number)
ORDER BY t.number

-- name: list_blocking_sessions
-- The sessions that a session waits for. The number 0 is that of a prepared transaction.
SELECT DISTINCT blocking.pid, activity.usename, activity.application_name, activity.xact_start
FROM unnest(pg_blocking_pids(%(pid)s)) AS blocking (pid)
LEFT JOIN pg_stat_activity AS activity ON activity.pid = blocking.pid
ORDER BY activity.xact_start, blocking.pid

-- name: lower_quarantine
UPDATE floodmark.quarantine
SET lsn = %(to_lsn)s
WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND lsn > %(to_lsn)s

-- name: lower_rows
-- The names in braces are filled in, quoted, by warehouse.sweep; the values are bound.
UPDATE {target} SET __lsn = %(to_lsn)s WHERE t.__lsn > %(to_lsn)s

-- name: lower_tombstones
UPDATE floodmark.tombstones
SET lsn = %(to_lsn)s
WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND lsn > %(to_lsn)s

-- name: read_referenced_table
-- The table that a foreign key refers to.
SELECT namespace.nspname, class.relname
FROM pg_constraint
JOIN pg_class AS class ON class.oid = pg_constraint.confrelid
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE pg_constraint.conname = %(constraint)s AND pg_constraint.conrelid = to_regclass(%(table)s)

-- name: recover_kept_value
-- The names in braces are filled in, quoted, by warehouse.gate; the values are bound.
UPDATE {staging}
SET {column} = (q.row_data ->> %(column)s)::{type}, {keep} = false,
    __unstorable = CASE
        WHEN NOT %(is_replaced)s AND (q.row_data ->> '__unstorable')::jsonb ? %(column)s
        THEN (coalesce(s.__unstorable::jsonb, '{{}}')
            || jsonb_build_object(%(column)s::text, (q.row_data ->> '__unstorable')::jsonb -> %(column)s))::text
        ELSE s.__unstorable
    END
FROM (
    SELECT DISTINCT ON (key) key, lsn, row_data
    FROM floodmark.quarantine
    WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s
      AND NOT coalesce((row_data ->> %(keep)s)::boolean, false)
    ORDER BY key, lsn DESC, quarantine_id DESC
) AS q
WHERE s.{keep} AND s.__op <> 1 AND q.key = {key} AND q.lsn <= s.__lsn
  AND NOT EXISTS (SELECT FROM {target} WHERE {same_key} AND t.__lsn >= q.lsn)

-- name: sweep_hard
-- The names in braces are filled in, quoted, by warehouse.sweep; the values are bound.
DELETE FROM {target}
WHERE {swept}
  AND NOT EXISTS (SELECT FROM {staging} WHERE {same_key})
  AND NOT EXISTS (
      SELECT FROM floodmark.quarantine AS q
      WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.window_id = %(window_id)s
        AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended({key}, 0) AND q.key = {key}
  )

-- name: sweep_soft
-- The names in braces are filled in, quoted, by warehouse.sweep; the values are bound.
UPDATE {target}
SET __deleted = true, __op = 1, __lsn = %(to_lsn)s, __window_id = %(window_id)s, __loaded_at = now(){committed}
WHERE NOT t.__deleted AND {swept}
  AND NOT EXISTS (SELECT FROM {staging} WHERE {same_key})
  AND NOT EXISTS (
      SELECT FROM floodmark.quarantine AS q
      WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.window_id = %(window_id)s
        AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended({key}, 0) AND q.key = {key}
  )

-- name: write_swept_tombstones
-- The names in braces are filled in, quoted, by warehouse.sweep; the values are bound.
-- No other session writes tombstones of the target meanwhile (warehouse.target_locks).
MERGE INTO floodmark.tombstones AS old
USING (
    SELECT {key} AS key
    FROM {target}
    WHERE {swept}
      AND NOT EXISTS (SELECT FROM {staging} WHERE {same_key})
      AND NOT EXISTS (
          SELECT FROM floodmark.quarantine AS q
          WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.window_id = %(window_id)s
            AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended({key}, 0) AND q.key = {key}
      )
) AS new
ON old.target_schema = %(target_schema)s AND old.target_name = %(target_name)s
    AND jsonb_hash_extended(old.key, 0) = jsonb_hash_extended(new.key, 0) AND old.key = new.key
WHEN MATCHED AND old.lsn < %(to_lsn)s THEN UPDATE SET lsn = %(to_lsn)s
WHEN NOT MATCHED THEN INSERT (target_schema, target_name, key, lsn)
    VALUES (%(target_schema)s, %(target_name)s, new.key, %(to_lsn)s)

-- name: write_tombstones
-- The names in braces are filled in, quoted, by warehouse.warehouse; the values are bound.
-- No other session writes tombstones of the target meanwhile (warehouse.target_locks).
MERGE INTO floodmark.tombstones AS old
USING (SELECT {key} AS key, s.__lsn AS lsn FROM {staging} WHERE s.__op = 1) AS new
ON old.target_schema = %(target_schema)s AND old.target_name = %(target_name)s
    AND jsonb_hash_extended(old.key, 0) = jsonb_hash_extended(new.key, 0) AND old.key = new.key
WHEN MATCHED AND old.lsn < new.lsn THEN UPDATE SET lsn = new.lsn
WHEN NOT MATCHED THEN INSERT (target_schema, target_name, key, lsn)
    VALUES (%(target_schema)s, %(target_name)s, new.key, new.lsn)
