-- A message is kept once, whatever the number of tables and windows that have met it.
INSERT INTO floodmark.quarantined_messages (pipeline, member, place, reason, body, source_schema, source_name, window_id)
SELECT %(pipeline)s, found.member, found.place, found.reason, found.body, %(source_schema)s, %(source_name)s, %(window_id)s
FROM unnest(%(members)s::text[], %(places)s::text[], %(reasons)s::text[], %(bodies)s::bytea[])
    AS found (member, place, reason, body)
ON CONFLICT (pipeline, member, place) DO NOTHING
