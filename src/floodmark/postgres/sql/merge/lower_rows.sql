-- The names in braces are filled in, quoted, by warehouse.sweep; the values are bound.
UPDATE {target} SET __lsn = %(to_lsn)s WHERE t.__lsn > %(to_lsn)s
