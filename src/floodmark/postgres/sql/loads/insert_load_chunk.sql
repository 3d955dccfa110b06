INSERT INTO floodmark.load_chunks (window_id, source_schema, source_name, chunk_no, after_bound, to_bound)
VALUES (%(window_id)s, %(source_schema)s, %(source_name)s, %(chunk_no)s, %(after_bound)s, %(to_bound)s)
