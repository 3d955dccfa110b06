SELECT source_schema, source_name, count(*) AS chunks, count(*) FILTER (WHERE state = 'staged') AS staged_chunks,
    coalesce(sum(rows) FILTER (WHERE state = 'staged'), 0)::bigint AS rows
FROM floodmark.load_chunks
WHERE window_id = %(window_id)s
GROUP BY source_schema, source_name
