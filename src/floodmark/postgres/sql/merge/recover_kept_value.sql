-- The names in braces are filled in, quoted, by warehouse.gate; the values are bound.
UPDATE {staging}
SET {column} = (q.row_data ->> %(column)s)::{type}, {keep} = false,
    __unstorable = CASE
        WHEN NOT %(is_replaced)s AND (q.row_data ->> '__unstorable')::jsonb ? %(column)s
        THEN (coalesce(s.__unstorable::jsonb, '{{}}')
            || jsonb_build_object(%(column)s::text, (q.row_data ->> '__unstorable')::jsonb -> %(column)s))::text
        ELSE s.__unstorable
    END
FROM (
    SELECT DISTINCT ON (key) key, lsn, row_data
    FROM floodmark.quarantine
    WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s
      AND NOT coalesce((row_data ->> %(keep)s)::boolean, false)
    ORDER BY key, lsn DESC, quarantine_id DESC
) AS q
WHERE s.{keep} AND s.__op <> 1 AND q.key = {key} AND q.lsn <= s.__lsn
  AND NOT EXISTS (SELECT FROM {target} WHERE {same_key} AND t.__lsn >= q.lsn)
