-- A message is kept once, whatever the number of tables and windows that have met it.
INSERT INTO floodmark.quarantined_messages
    (pipeline, topic, member, place, reason, body, source_schema, source_name, window_id)
SELECT %(pipeline)s, found.*, %(source_schema)s, %(source_name)s, %(window_id)s
FROM unnest(%(topics)s::text[], %(members)s::text[], %(places)s::text[], %(reasons)s::text[], %(bodies)s::bytea[])
    AS found (topic, member, place, reason, body)
ON CONFLICT (pipeline, topic, member, place) DO NOTHING
