SELECT source_schema, source_name, instance_name, shape, absent,
    extract(epoch FROM now() - seen_at)::float8 AS age_seconds
FROM floodmark.drift_shapes
WHERE source = %(source)s
