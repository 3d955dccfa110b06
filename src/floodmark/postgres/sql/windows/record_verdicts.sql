INSERT INTO floodmark.verdicts AS known
    (pipeline, source_schema, source_name, verdict, cause, hint, watermark, min_lsn, max_lsn)
SELECT %(pipeline)s, found.*
FROM unnest(%(source_schemas)s::text[], %(source_names)s::text[], %(verdicts)s::text[], %(causes)s::text[],
    %(hints)s::text[], %(watermarks)s::bytea[], %(min_lsns)s::bytea[], %(max_lsns)s::bytea[]) AS found
ON CONFLICT (pipeline, source_schema, source_name) DO UPDATE SET
    verdict = excluded.verdict, cause = excluded.cause, hint = excluded.hint,
    watermark = excluded.watermark, min_lsn = excluded.min_lsn, max_lsn = excluded.max_lsn,
    since = CASE WHEN known.verdict = excluded.verdict THEN known.since ELSE now() END,
    seen_at = now()
