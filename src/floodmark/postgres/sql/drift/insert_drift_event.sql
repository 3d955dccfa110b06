INSERT INTO floodmark.drift_events
    (source, source_schema, source_name, instance_name, instance_object_id, instance_created_at, kind, column_name,
    before, after, is_captured, obstacle, ddl, ddl_lsn, proposal, policies)
VALUES (%(source)s, %(source_schema)s, %(source_name)s, %(instance_name)s, %(instance_object_id)s,
    %(instance_created_at)s, %(kind)s, %(column_name)s, %(before)s, %(after)s, %(is_captured)s, %(obstacle)s, %(ddl)s,
    %(ddl_lsn)s, %(proposal)s, %(policies)s)
RETURNING event_id
