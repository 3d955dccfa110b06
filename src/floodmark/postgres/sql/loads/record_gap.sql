-- For a known gap, the time when it was found is kept and its end moves on. No row is written where the watermark has
-- moved since the check: a load has closed the gap.
INSERT INTO floodmark.gaps AS known
    (pipeline, source_schema, source_name, verdict, cause, after_lsn, to_lsn, after_at, to_at)
SELECT t.pipeline, t.source_schema, t.source_name, %(verdict)s, %(cause)s, %(after_lsn)s::bytea, %(to_lsn)s::bytea,
    %(after_at)s::timestamp, %(to_at)s::timestamp
FROM floodmark.tables AS t
WHERE t.pipeline = %(pipeline)s AND t.source_schema = %(source_schema)s AND t.source_name = %(source_name)s
  AND t.watermark IS NOT DISTINCT FROM %(watermark)s::bytea
ON CONFLICT (pipeline, source_schema, source_name) WHERE repaired_at IS NULL DO UPDATE
    SET to_lsn = excluded.to_lsn, to_at = excluded.to_at
    WHERE known.verdict = excluded.verdict AND known.to_lsn < excluded.to_lsn
