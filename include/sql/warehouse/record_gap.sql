-- Of a gap that is known already, the first sight stays, and its end moves on.
INSERT INTO floodmark.gaps AS known
    (pipeline, source_schema, source_name, verdict, cause, after_lsn, to_lsn, after_at, to_at)
VALUES (%(pipeline)s, %(source_schema)s, %(source_name)s, %(verdict)s, %(cause)s, %(after_lsn)s, %(to_lsn)s,
    %(after_at)s, %(to_at)s)
ON CONFLICT (pipeline, source_schema, source_name) WHERE repaired_at IS NULL DO UPDATE
    SET to_lsn = excluded.to_lsn, to_at = excluded.to_at
    WHERE known.verdict = excluded.verdict AND known.to_lsn < excluded.to_lsn
