-- The columns of each index of a table that a range of keys can be read by, in the order of the index. Parameter: the
-- quoted name of the table.
SELECT i.index_id, c.name AS column_name, k.is_descending_key
FROM sys.indexes AS i
JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.object_id = OBJECT_ID(?) AND i.type IN (1, 2) AND i.is_disabled = 0 AND i.is_hypothetical = 0
    AND i.has_filter = 0 AND k.key_ordinal > 0
ORDER BY i.index_id, k.key_ordinal
