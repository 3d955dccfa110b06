-- The last beat, and the newest that capture has brought. Both names are quoted; the change table's is the server's own.
SELECT h.beat, h.beaten_at, h.waiting_since, (SELECT MAX(c.beat) FROM {change_table} AS c) AS arrived_beat,
    GETDATE() AS taken_at
FROM {table} AS h
WHERE h.id = 1
