INSERT INTO floodmark.members AS known (pipeline, source_schema, source_name, member, verdict, cause, hint)
SELECT %(pipeline)s, %(source_schema)s, %(source_name)s, found.*
FROM unnest(%(members)s::text[], %(verdicts)s::text[], %(causes)s::text[], %(hints)s::text[]) AS found
ON CONFLICT (pipeline, source_schema, source_name, member) DO UPDATE SET
    verdict = excluded.verdict, cause = excluded.cause, hint = excluded.hint,
    since = CASE WHEN known.verdict IS NOT DISTINCT FROM excluded.verdict THEN known.since ELSE now() END,
    examined_at = now()
