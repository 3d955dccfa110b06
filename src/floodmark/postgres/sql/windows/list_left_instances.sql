-- The instances from which a pipeline has switched to others.
SELECT s.old_name, s.old_object_id, s.old_created_at, s.new_name
FROM floodmark.switched_pipelines AS p
JOIN floodmark.instance_switches AS s USING (switch_id)
WHERE p.pipeline = %(pipeline)s
ORDER BY s.switch_id
