-- Committed transactions with captured changes after a watermark. An entry whose tran_id is zero is an idle source's.
SELECT COUNT(*) AS transactions FROM cdc.lsn_time_mapping WHERE start_lsn > ? AND tran_id <> 0x00
