INSERT INTO floodmark.window_members (window_id, source_schema, source_name, member, before_mark, after_mark)
SELECT %(window_id)s, %(source_schema)s, %(source_name)s, found.*
FROM unnest(%(members)s::text[], %(befores)s::text[], %(afters)s::text[]) AS found (member, before_mark, after_mark)
WHERE found.after_mark IS NOT NULL
