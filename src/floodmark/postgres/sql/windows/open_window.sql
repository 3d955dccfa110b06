INSERT INTO floodmark.windows (pipeline, lane, to_lsn, to_lsn_at, lag_seconds, plan)
VALUES (%(pipeline)s, %(lane)s, %(to_lsn)s, %(to_lsn_at)s, %(lag_seconds)s, '{}')
RETURNING window_id
