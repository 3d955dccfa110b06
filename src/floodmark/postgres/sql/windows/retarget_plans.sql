-- Unfinished windows go on with the new name, and a release takes its plan from the newest window.
UPDATE floodmark.windows AS w
SET plan = jsonb_set(w.plan, '{tables}', (
    SELECT jsonb_agg(
        CASE WHEN planned -> 'source' = jsonb_build_array(%(source_schema)s::text, %(source_name)s::text)
            THEN jsonb_set(planned, '{target}', jsonb_build_array(%(target_schema)s::text, %(target_name)s::text))
            ELSE planned END
        ORDER BY place)
    FROM jsonb_array_elements(w.plan -> 'tables') WITH ORDINALITY AS t (planned, place)))
FROM floodmark.window_tables AS x
WHERE w.pipeline = %(pipeline)s AND x.window_id = w.window_id
  AND x.source_schema = %(source_schema)s AND x.source_name = %(source_name)s
