INSERT INTO floodmark.verdicts AS known
    (pipeline, source_schema, source_name, verdict, cause, hint, watermark, min_lsn, max_lsn)
VALUES (%(pipeline)s, %(source_schema)s, %(source_name)s, %(verdict)s, %(cause)s, %(hint)s,
    %(watermark)s, %(min_lsn)s, %(max_lsn)s)
ON CONFLICT (pipeline, source_schema, source_name) DO UPDATE SET
    verdict = excluded.verdict, cause = excluded.cause, hint = excluded.hint,
    watermark = excluded.watermark, min_lsn = excluded.min_lsn, max_lsn = excluded.max_lsn,
    since = CASE WHEN known.verdict = excluded.verdict THEN known.since ELSE now() END,
    seen_at = now()
