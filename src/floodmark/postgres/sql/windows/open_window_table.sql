INSERT INTO floodmark.window_tables (window_id, source_schema, source_name, kind, after_lsn, margin_seconds)
VALUES (%(window_id)s, %(source_schema)s, %(source_name)s, %(kind)s, %(after_lsn)s, %(margin_seconds)s)
