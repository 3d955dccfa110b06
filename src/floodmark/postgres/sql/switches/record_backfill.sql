UPDATE floodmark.switched_pipelines SET window_id = %(window_id)s
WHERE switch_id = %(switch_id)s AND pipeline = %(pipeline)s
