-- name: confirm_database
INSERT INTO floodmark.followed_databases
    (pipeline, server_name, database_name, database_guid, group_database_id, confirmed_by)
VALUES (%(pipeline)s, %(server)s, %(database)s, %(guid)s, %(group_id)s, %(confirmed_by)s)
ON CONFLICT (pipeline) DO UPDATE
SET server_name = excluded.server_name,
    database_name = excluded.database_name,
    database_guid = excluded.database_guid,
    group_database_id = excluded.group_database_id,
    since = now(),
    confirmed_by = excluded.confirmed_by

-- name: read_database
SELECT server_name, database_name, database_guid, group_database_id
FROM floodmark.followed_databases
WHERE pipeline = %(pipeline)s

-- name: record_database
-- The record of a database is replaced where it is still the known one, or where no watermark was read from it.
INSERT INTO floodmark.followed_databases (pipeline, server_name, database_name, database_guid, group_database_id)
VALUES (%(pipeline)s, %(server)s, %(database)s, %(guid)s, %(group_id)s)
ON CONFLICT (pipeline) DO UPDATE
SET server_name = excluded.server_name,
    database_name = excluded.database_name,
    database_guid = excluded.database_guid,
    group_database_id = excluded.group_database_id,
    since = now(),
    confirmed_by = NULL
WHERE (followed_databases.server_name, followed_databases.database_name, followed_databases.database_guid,
        followed_databases.group_database_id)
        IS NOT DISTINCT FROM (%(known_server)s, %(known_database)s, %(known_guid)s::uuid, %(known_group_id)s::uuid)
    OR NOT EXISTS (
        SELECT FROM floodmark.tables AS t WHERE t.pipeline = %(pipeline)s AND t.watermark IS NOT NULL
    )
