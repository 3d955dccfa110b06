-- The commit time of the newest entry of the log that is not above a position, or else of the oldest one.
-- Parameter: position.
SELECT COALESCE(
    (SELECT MAX(m.tran_end_time) FROM cdc.lsn_time_mapping AS m WHERE m.start_lsn = (
        SELECT MAX(b.start_lsn) FROM cdc.lsn_time_mapping AS b WHERE b.start_lsn <= ?)),
    (SELECT MIN(o.tran_end_time) FROM cdc.lsn_time_mapping AS o)) AS committed_at
