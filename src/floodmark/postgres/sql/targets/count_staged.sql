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
