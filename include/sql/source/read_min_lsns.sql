-- Where the capture instances begin that the login may see. Joined to the statement that reads their newest changes.
SELECT LEFT(t.name, LEN(t.name) - 3) AS capture_instance,
    sys.fn_cdc_get_min_lsn(LEFT(t.name, LEN(t.name) - 3)) AS min_lsn
FROM sys.tables AS t
WHERE t.schema_id = SCHEMA_ID(N'cdc') AND t.name LIKE N'%[_]CT'
