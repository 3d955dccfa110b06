UPDATE floodmark.tombstones
SET lsn = %(to_lsn)s
WHERE target_schema = %(target_schema)s AND target_name = %(target_name)s AND lsn > %(to_lsn)s
