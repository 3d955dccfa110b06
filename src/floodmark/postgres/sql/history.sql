-- name: delete_old_versions
-- By the index on the ends of versions, whose times hardly differ from its order: no run reads the whole table.
DELETE FROM {versions}
WHERE ctid = ANY (ARRAY(
    SELECT oldest.ctid
    FROM (
        SELECT v.ctid, v.__valid_to FROM {versions} AS v ORDER BY v.__next_load, v.__next_lsn LIMIT {at_most}
    ) AS oldest
    WHERE oldest.__valid_to < {kept_since}
))

-- name: drop_empty_deletes
-- The key in quarantine ends with load and position. The names in braces are filled in, quoted, by warehouse.gate; the
-- values are bound.
DELETE FROM {staging}
WHERE s.__op = 1
  AND NOT EXISTS (SELECT FROM {target} WHERE {same_key} AND NOT t.__deleted)
  AND NOT EXISTS (
      SELECT FROM floodmark.quarantine AS q
      WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.settled_at IS NULL
        AND q.key - -1 - -1 = {key}
  )

-- name: match_newest
-- What a window of a fleet found, compared with the newest versions: a row that equals the living one is no event, and
-- __op says whether the key has one. The names in braces are filled in, quoted, by warehouse.history.
UPDATE {staging} AS s
SET __op = found.op, __load = CASE WHEN NOT found.is_same THEN s.__load END
FROM (
    SELECT s.ctid AS place, CASE WHEN t.__deleted THEN 2 WHEN t.__lsn IS NULL THEN 2 ELSE 4 END AS op,
        t.__lsn IS NOT NULL AND NOT t.__deleted AND NOT ({differs}) AS is_same
    FROM {staging} AS s LEFT JOIN {target} AS t ON {same_key}
    WHERE s.__op <> 1
) AS found
WHERE s.ctid = found.place AND (found.is_same OR found.op <> s.__op)

-- name: has_late_events
-- Whether the target has the same version of a staged row, or a later one of its key; whether one left a value out; and
-- whether a key has more than one.
SELECT
    EXISTS (
        SELECT FROM {staging} AS s JOIN {target} AS t USING ({key})
        WHERE (t.__load, t.__lsn) >= (s.__load, s.__lsn)
    ),
    EXISTS (SELECT FROM {staging} AS s WHERE {leaves_out}),
    EXISTS (SELECT FROM {staging} AS s WHERE __load IS NOT NULL GROUP BY {key} HAVING count(*) > 1)

-- name: end_newest
-- The same as merge_events for events of which none is late or left a value out, one for each key: each ends the newest
-- version of its key. merge_newest follows in the same transaction.
-- The names in braces are filled in, quoted, by warehouse.history.
INSERT INTO {versions} AS t ({columns}, {own}, {ended_own})
SELECT {near}, s.__load, s.__lsn, greatest(t.__valid_from, s.__committed_at)
FROM {staging} AS s JOIN {target} AS t USING ({key})
WHERE s.__load IS NOT NULL
ON CONFLICT ({key}, __load, __lsn) DO UPDATE SET {set_ended}

-- name: merge_newest
-- The names in braces are filled in, quoted, by warehouse.history; the values are bound.
MERGE INTO {target} AS t
USING (SELECT * FROM {staging} WHERE __load IS NOT NULL ORDER BY {key}) AS s ON {same_key}
WHEN MATCHED THEN UPDATE SET {set_values}__load = s.__load, __lsn = s.__lsn, __op = s.__op, __deleted = (s.__op = 1),
    __committed_at = s.__committed_at, __kept = '{{}}', __valid_from = greatest(t.__valid_from, s.__committed_at),
    __window_id = %(window_id)s, __loaded_at = now()
WHEN NOT MATCHED THEN INSERT ({columns}, {own})
    VALUES ({inserted}, s.__load, s.__lsn, s.__op, s.__op = 1, s.__committed_at, '{{}}', s.__committed_at, %(window_id)s, now())

-- name: count_events
SELECT count(*) FILTER (WHERE __op = 2), count(*) FILTER (WHERE __op = 4), count(*) FILTER (WHERE __op = 1), count(*)
FROM {staging} WHERE __load IS NOT NULL

-- name: merge_events
-- The staged events with the versions next to them, in one chain for each key: all that follows from the neighbours of a
-- version is computed again. Each key then has one newest version, and the others are ended. Returns the numbers of
-- inserts, updates and deletes that were new, and of rows of the target that have the number of the window.
-- The names in braces are filled in, quoted, by warehouse.history; the values are bound.
WITH s AS (SELECT * FROM {staging} WHERE __load IS NOT NULL),
lo AS (SELECT {key}, min(__load) AS __load, min(__lsn) AS __lsn FROM s GROUP BY {key}),
near AS (
    SELECT {near} FROM lo JOIN {target} AS t USING ({key})
    {near_ended}
),
every AS (
    SELECT {staged}, __load, __lsn, __op, __committed_at, {staged_kept} AS __kept, NULL::timestamptz AS __valid_from,
        %(window_id)s::bigint AS __window_id, now() AS __loaded_at
    FROM s
    UNION ALL
    SELECT {columns}, __load, __lsn, __op, __committed_at, __kept, __valid_from, __window_id, __loaded_at
    FROM near AS t
    WHERE NOT EXISTS (SELECT FROM s WHERE {same_event})
),
-- The first version of a key that is near has its stored values, also those that its change had left out. A stored
-- __valid_from is the highest time up to its version, and can only grow with the set.
chained AS (
    SELECT {columns}, __load, __lsn, __op, __committed_at, __kept, __window_id, __loaded_at,
        lead(__load) OVER w AS __next_load, lead(__lsn) OVER w AS __next_lsn,
        max(coalesce(__valid_from, __committed_at)) OVER w AS __valid_from{owners}
    FROM every WINDOW w AS (PARTITION BY {key} ORDER BY __load, __lsn)
),
version AS MATERIALIZED (
    SELECT {healed}, __load, __lsn, __op, __op = 1 AS __deleted, __committed_at, __kept, __valid_from, __window_id,
        __loaded_at, __next_load, __next_lsn,
        lead(__valid_from) OVER (PARTITION BY {key} ORDER BY __load, __lsn) AS __valid_to
    FROM chained
),
ended AS (
    INSERT INTO {versions} AS t ({columns}, {own}, {ended_own})
    SELECT {columns}, {own}, {ended_own} FROM version WHERE __next_lsn IS NOT NULL
    ON CONFLICT ({key}, __load, __lsn) DO UPDATE SET {set_ended}
    WHERE ({old_ended}) IS DISTINCT FROM ({new_ended})
),
newest AS (
    INSERT INTO {target} AS t ({columns}, {own})
    SELECT {columns}, {own} FROM version WHERE __next_lsn IS NULL ORDER BY {key}
    ON CONFLICT ({key}) DO UPDATE SET {set_newest}
    WHERE ({old_newest}) IS DISTINCT FROM ({new_newest})
    RETURNING t.__window_id
)
SELECT count(*) FILTER (WHERE s.__op = 2), count(*) FILTER (WHERE s.__op = 4), count(*) FILTER (WHERE s.__op = 1),
    (SELECT count(*) FROM newest WHERE newest.__window_id = %(window_id)s)
FROM s
WHERE NOT EXISTS (SELECT FROM near AS t WHERE {same_event})

-- name: merge_loaded
-- The rows of a load of the whole table, compared with the newest versions. One that differs is a version at the
-- position of the load and ends the one before it; so is the end of a row that the load did not find. Returns the
-- numbers of rows that are new, that differ, and that were not found.
-- The names in braces are filled in, quoted, by warehouse.history; the values are bound.
WITH began AS (SELECT coalesce(max(__committed_at), now()) AS at FROM {staging}),
differs AS MATERIALIZED (
    SELECT {load_key}, {load_values}{load_old}, s.__lsn IS NULL AS __keep_gone, t.__lsn IS NOT NULL AS __keep_had,
        greatest((SELECT at FROM began), t.__valid_from) AS __keep_from
    FROM {target} AS t FULL JOIN {staging} AS s ON {same_key}
    WHERE CASE
        WHEN s.__lsn IS NULL THEN %(sweeps)s AND NOT t.__deleted AND NOT EXISTS (
            SELECT FROM floodmark.quarantine AS q
            WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s
              AND q.window_id = %(window_id)s
              AND jsonb_hash_extended(q.key, 0)
                  = jsonb_hash_extended(jsonb_build_array({row_key}, %(window_id)s::bigint, %(load_lsn)s::bytea), 0)
              AND q.key = jsonb_build_array({row_key}, %(window_id)s::bigint, %(load_lsn)s::bytea)
        )
        WHEN t.__lsn IS NULL OR t.__deleted THEN true
        ELSE {differs}
    END
),
ended AS (
    INSERT INTO {versions} ({columns}, {own}, {ended_own})
    SELECT {columns_old}, {own_old}, %(window_id)s, %(load_lsn)s, __keep_from FROM differs WHERE __keep_had
),
newest AS (
    INSERT INTO {target} AS t ({columns}, {own})
    SELECT {columns}, %(window_id)s, %(load_lsn)s, CASE WHEN __keep_gone THEN 1 ELSE 2 END, __keep_gone,
        (SELECT at FROM began), '{{}}', __keep_from, %(window_id)s, now()
    FROM differs ORDER BY {key}
    ON CONFLICT ({key}) DO UPDATE SET {set_newest}
)
SELECT count(*) FILTER (WHERE NOT __keep_gone AND (NOT __keep_had OR {deleted_old})),
    count(*) FILTER (WHERE NOT __keep_gone AND __keep_had AND NOT {deleted_old}), count(*) FILTER (WHERE __keep_gone)
FROM differs

-- name: settle_of_members
-- The versions in quarantine that a window of a fleet overtakes: it read their keys again, or the whole of their device.
-- A key in quarantine begins with the device, and ends with load and position.
UPDATE floodmark.quarantine AS q
SET settled_at = now(), settled_by = %(by)s, outcome = 'overtaken'
WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.settled_at IS NULL
  AND q.window_id <> %(window_id)s
  AND (
      q.key ->> 0 = ANY (%(members)s)
      OR q.key - -1 - -1 IN (SELECT jsonb_build_array({key}) FROM {staging} AS s)
  )

-- name: stage_gone
-- The deletes of rows that a fleet's devices no longer have, which were read as a whole.
-- The names in braces are filled in, quoted, by warehouse.history; the values are bound.
INSERT INTO {staging} ({key}, {keeps}__lsn, __op, __committed_at)
SELECT {row_key}, {kept}%(lsn)s, 1, coalesce((SELECT max(__committed_at) FROM {staging}), now())
FROM {target} AS t
WHERE NOT t.__deleted AND t.{member} = ANY (%(members)s)
  AND NOT EXISTS (SELECT FROM {staging} AS s WHERE {same_key})
  AND NOT EXISTS (
      SELECT FROM floodmark.quarantine AS q
      WHERE q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s AND q.window_id = %(window_id)s
        AND q.key - -1 - -1 = jsonb_build_array({row_key})
  )

-- name: pass_over_deleted
-- The events that may be versions which were deleted for their age, or follow one.
UPDATE {staging} SET __load = NULL WHERE {deleted}

-- name: pass_over_loaded
-- The events that the newest load of the whole table has read.
UPDATE {staging} SET __load = NULL WHERE __lsn <= %(load_lsn)s
