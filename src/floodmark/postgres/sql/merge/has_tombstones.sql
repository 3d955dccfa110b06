SELECT EXISTS (
    SELECT FROM floodmark.tombstones
    WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND lsn > %(above_lsn)s
)
