-- Whether the target has a row as it was before it was deleted. The names in braces are filled in, quoted.
SELECT EXISTS (
    SELECT FROM floodmark.tombstones AS d
    JOIN {target} ON jsonb_hash_extended(d.key, 0) = jsonb_hash_extended({key}, 0) AND d.key = {key}
    WHERE d.target_schema = %(target_schema)s AND d.target_name = %(target_name)s AND d.lsn > t.__lsn
)
