INSERT INTO floodmark.windows (pipeline, lane, to_lsn, to_lsn_at, plan)
VALUES (%(pipeline)s, %(lane)s, %(to_lsn)s, %(to_lsn_at)s, '{}')
RETURNING window_id
