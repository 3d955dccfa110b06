-- name: count_open_keys
SELECT count(DISTINCT key)
FROM floodmark.quarantine
WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND settled_at IS NULL

-- name: count_outcomes
SELECT outcome, rule, count(*) AS rows
FROM floodmark.quarantine
WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND (settled_at IS NULL OR settled_at = now())
GROUP BY outcome, rule ORDER BY outcome, rule

-- name: count_waiting
-- The rows that wait, by table: a row that broke several rules, or several times, waits once.
SELECT source_schema, source_name, count(DISTINCT key) AS rows, array_agg(DISTINCT rule ORDER BY rule) AS rules
FROM floodmark.quarantine
WHERE pipeline = %(pipeline)s AND settled_at IS NULL
GROUP BY source_schema, source_name
ORDER BY source_schema, source_name

-- name: discard_rows
UPDATE floodmark.quarantine
SET settled_at = now(), settled_by = %(by)s, outcome = 'discarded'
WHERE pipeline = %(pipeline)s AND source_schema = %(source_schema)s AND source_name = %(source_name)s
  AND settled_at IS NULL AND (%(rule)s::text IS NULL OR rule = %(rule)s)

-- name: newest_plan
-- The newest merged window with a table in it.
SELECT w.window_id, w.lane, w.attempt, w.state, w.plan, w.to_lsn_at, w.checked_at
FROM floodmark.windows AS w
JOIN floodmark.window_tables AS t USING (window_id)
WHERE w.pipeline = %(pipeline)s AND w.state <> 'planned'
  AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
ORDER BY w.window_id DESC
LIMIT 1

-- name: settle_older
-- Rows that are older than the newest load of the whole table, or than a settled row of the same key.
UPDATE floodmark.quarantine AS q
SET settled_at = now(), settled_by = %(by)s, outcome = 'overtaken'
WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.settled_at IS NULL
  AND (
      q.window_id < %(load_window_id)s
      OR EXISTS (
          SELECT FROM floodmark.quarantine AS n
          WHERE n.target_schema = q.target_schema AND n.target_name = q.target_name
            AND jsonb_hash_extended(n.key, 0) = jsonb_hash_extended(q.key, 0) AND n.key = q.key
            AND n.lsn > q.lsn AND n.settled_at IS NOT NULL
      )
  )

-- name: settle_overtaken
-- The names in braces are filled in, quoted, by warehouse.release; the values are bound.
WITH lost AS (
    DELETE FROM {staging}
    WHERE EXISTS (SELECT FROM {target} WHERE {same_key} AND t.__lsn > s.__lsn)
       OR ({deleted})
       OR EXISTS (
           SELECT FROM floodmark.tombstones AS d
           WHERE d.target_schema = %(target_schema)s AND d.target_name = %(target_name)s
             AND jsonb_hash_extended(d.key, 0) = jsonb_hash_extended({key}, 0) AND d.key = {key} AND d.lsn > s.__lsn
       )
    RETURNING {key} AS key, s.__lsn AS lsn
)
UPDATE floodmark.quarantine AS q
SET settled_at = now(), settled_by = %(by)s, outcome = 'overtaken'
FROM lost
WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.settled_at IS NULL
  AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended(lost.key, 0) AND q.key = lost.key AND q.lsn <= lost.lsn

-- name: settle_released
-- The names in braces are filled in, quoted, by warehouse.gate; the values are bound.
-- A merged row settles its key: it is the row of quarantine itself, or a later one.
UPDATE floodmark.quarantine AS q
SET settled_at = now(), settled_by = %(by)s,
    outcome = CASE WHEN q.lsn = s.__lsn THEN 'released' ELSE 'overtaken' END
FROM {staging}
WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.settled_at IS NULL
  AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended({key}, 0) AND q.key = {key} AND q.lsn <= s.__lsn

-- name: stage_newest
-- The names in braces are filled in, quoted, by warehouse.release; the values are bound.
-- The newest open row of each key. Its LSN is that of the record, which a load of the whole table may have lowered.
INSERT INTO {staging}
SELECT made.*
FROM (
    SELECT DISTINCT ON (key) key, lsn, row_data
    FROM floodmark.quarantine
    WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND settled_at IS NULL
    ORDER BY key, lsn DESC, quarantine_id DESC
) AS q
CROSS JOIN LATERAL jsonb_populate_record(
    NULL::{staging},
    CASE WHEN %(is_replaced)s AND NOT coalesce((q.row_data ->> '__unstorable')::jsonb ?| %(key)s::text[], false)
        THEN q.row_data - '__unstorable' ELSE q.row_data END
    || jsonb_build_object('__lsn', q.lsn::bytea)
) AS made
WHERE q.row_data ?& %(columns)s::text[]
  AND q.key = (SELECT jsonb_agg(q.row_data -> k.name ORDER BY k.place)
               FROM unnest(%(key)s::text[]) WITH ORDINALITY AS k (name, place))
