UPDATE floodmark.instance_switches SET state = %(state)s, finished_at = now() WHERE switch_id = %(switch_id)s
