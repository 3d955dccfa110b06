INSERT INTO floodmark.drift_holds (event_id, pipeline, source_schema, source_name)
VALUES (%(event_id)s, %(pipeline)s, %(source_schema)s, %(source_name)s)
