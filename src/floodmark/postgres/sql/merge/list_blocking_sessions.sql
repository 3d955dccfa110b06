-- The sessions that a session waits for. The number 0 is that of a prepared transaction.
SELECT DISTINCT blocking.pid, activity.usename, activity.application_name, activity.xact_start
FROM unnest(pg_blocking_pids(%(pid)s)) AS blocking (pid)
LEFT JOIN pg_stat_activity AS activity ON activity.pid = blocking.pid
ORDER BY activity.xact_start, blocking.pid
