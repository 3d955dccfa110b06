-- The instance to which a pipeline has switched from the given one.
SELECT s.new_name
FROM floodmark.switched_pipelines AS p
JOIN floodmark.instance_switches AS s USING (switch_id)
WHERE p.pipeline = %(pipeline)s
  AND (s.old_name, s.old_object_id, s.old_created_at)
      = (%(instance_name)s, %(instance_object_id)s, %(instance_created_at)s)
