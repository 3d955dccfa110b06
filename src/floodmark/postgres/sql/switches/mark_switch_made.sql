-- The name is kept when the instance is gone again: another one is created under it.
UPDATE floodmark.instance_switches
SET state = %(state)s, new_name = coalesce(%(new_name)s, new_name), new_object_id = %(new_object_id)s,
    new_created_at = %(new_created_at)s, made_at = CASE WHEN %(new_object_id)s::integer IS NULL THEN NULL ELSE now() END
WHERE switch_id = %(switch_id)s AND state IN ('approved', 'made')
