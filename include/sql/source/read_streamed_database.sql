-- The database of a source that is read from its event stream, with one constant text. One result set of one row. Both
-- identifiers move with the database: the first stays through renames, restores and failovers, the second is the same on
-- every replica of an availability group, and NULL outside of one. Restores and failovers end a stream: see docs/sources.md.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 10000;

SELECT DB_NAME() AS database_name, GETDATE() AS taken_at, CAST(SERVERPROPERTY('ServerName') AS nvarchar(128)) AS server_name,
    d.service_broker_guid, d.group_database_id
FROM sys.databases AS d
WHERE d.name = DB_NAME();
