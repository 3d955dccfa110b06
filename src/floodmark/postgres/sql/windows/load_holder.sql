SELECT coalesce(host(a.client_addr), 'this machine') AS client, a.backend_start AS since
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.database = (
    SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()
)
  AND l.classid = %(classid)s AND l.objid = %(objid)s AND l.objsubid = 2
