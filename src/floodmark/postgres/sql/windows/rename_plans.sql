UPDATE floodmark.windows SET plan = jsonb_set(plan, '{pipeline}', to_jsonb(%(name)s::text)) WHERE pipeline = %(name)s
