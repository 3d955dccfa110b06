-- The names in braces are filled in, quoted, by warehouse.release; the values are bound.
-- The newest open row of each key. Its LSN is that of the record, which a load of the whole table may have lowered.
INSERT INTO {staging}
SELECT made.*
FROM (
    SELECT DISTINCT ON (key) key, lsn, row_data
    FROM floodmark.quarantine
    WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND settled_at IS NULL
    ORDER BY key, lsn DESC, quarantine_id DESC
) AS q
CROSS JOIN LATERAL jsonb_populate_record(
    NULL::{staging},
    CASE WHEN %(is_replaced)s AND NOT coalesce((q.row_data ->> '__unstorable')::jsonb ?| %(key)s::text[], false)
        THEN q.row_data - '__unstorable' ELSE q.row_data END
    || jsonb_build_object('__lsn', q.lsn::bytea)
) AS made
WHERE q.row_data ?& %(columns)s::text[]
  AND q.key = (SELECT jsonb_agg(q.row_data -> k.name ORDER BY k.place)
               FROM unnest(%(key)s::text[]) WITH ORDINALITY AS k (name, place))
