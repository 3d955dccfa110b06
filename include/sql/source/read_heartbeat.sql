-- The last beat, and the newest that was captured. Both names are quoted; the server has chosen the change table's
-- name.
SELECT h.beat, h.beaten_at, h.waiting_since, (SELECT MAX(c.beat) FROM {change_table} AS c) AS arrived_beat,
    GETDATE() AS taken_at
FROM {table} AS h
WHERE h.id = 1
