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
