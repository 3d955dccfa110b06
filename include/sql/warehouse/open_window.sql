INSERT INTO floodmark.windows (pipeline, to_lsn, to_lsn_at, plan)
VALUES (%(pipeline)s, %(to_lsn)s, %(to_lsn_at)s, '{}')
RETURNING window_id
