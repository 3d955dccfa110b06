SELECT source_schema, source_name, instance_name, shape, absent
FROM floodmark.drift_shapes
WHERE source = %(source)s
