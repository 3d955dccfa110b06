SELECT pipeline
FROM floodmark.tables
WHERE (instance_name, instance_object_id, instance_created_at)
    = (%(instance_name)s, %(instance_object_id)s, %(instance_created_at)s)
ORDER BY pipeline
