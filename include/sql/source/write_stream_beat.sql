-- Write the next beat of an event stream. The name is quoted.
SET NOCOUNT ON;
SET LOCK_TIMEOUT 10000;

UPDATE {table}
SET beat = beat + 1, beaten_at = SYSUTCDATETIME()
WHERE id = 1;
