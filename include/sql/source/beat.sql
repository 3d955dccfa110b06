-- Write the next beat. Parameter: 1 where no earlier beat is pending.
SET NOCOUNT ON;
UPDATE {table}
SET beat = beat + 1, beaten_at = GETDATE(),
    waiting_since = CASE WHEN ? = 1 THEN GETDATE() ELSE waiting_since END
WHERE id = 1;
