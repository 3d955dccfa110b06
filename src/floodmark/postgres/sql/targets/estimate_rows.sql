-- About how many rows a target has: by the counters, which a crash empties, or by the last ANALYZE (-1 before the first).
SELECT coalesce(
    nullif(pg_catalog.pg_stat_get_live_tuples(c.oid), 0), nullif(c.reltuples, -1)::bigint
) AS rows
FROM pg_catalog.pg_class AS c
WHERE c.oid = to_regclass(%(target)s)
