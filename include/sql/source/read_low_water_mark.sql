-- The newest entry of the log that is not above a position and at least so many seconds older than it: cleanup takes
-- entries only. Parameters: position, seconds, position.
SELECT MAX(m.start_lsn) AS low_water_mark
FROM cdc.lsn_time_mapping AS m
WHERE m.start_lsn <= ?
    AND m.tran_end_time <= DATEADD(
        second, -?, (SELECT MAX(w.tran_end_time) FROM cdc.lsn_time_mapping AS w WHERE w.start_lsn <= ?))
