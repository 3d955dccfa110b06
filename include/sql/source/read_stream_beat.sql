-- The heartbeat table of an event stream: its last beat, how long ago it was written, and whether the login may write the
-- next one. The name is quoted.
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;

SELECT h.beat, DATEDIFF_BIG(millisecond, h.beaten_at, SYSUTCDATETIME()) / 1000.0 AS age_seconds,
    HAS_PERMS_BY_NAME(N{literal}, N'OBJECT', N'UPDATE') AS may_write
FROM {table} AS h
WHERE h.id = 1;
