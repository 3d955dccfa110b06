-- The system views of one database. :database_id, :'database' and the schemas :sys and :information_schema are filled in.
CREATE VIEW :sys."databases" AS
SELECT d.name::emulator.sysname AS name, d.database_id FROM emulator.databases d;
