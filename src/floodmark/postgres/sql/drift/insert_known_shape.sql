INSERT INTO floodmark.drift_shapes (source, source_schema, source_name, instance_name, shape, absent)
VALUES (%(source)s, %(source_schema)s, %(source_name)s, %(instance_name)s, %(shape)s, %(absent)s)
ON CONFLICT DO NOTHING
RETURNING instance_name
