INSERT INTO floodmark.window_tables (window_id, source_schema, source_name, kind, after_lsn)
VALUES (%(window_id)s, %(source_schema)s, %(source_name)s, %(kind)s, %(after_lsn)s)
