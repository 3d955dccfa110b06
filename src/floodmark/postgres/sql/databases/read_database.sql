SELECT server_name, database_name, database_guid, group_database_id
FROM floodmark.followed_databases
WHERE pipeline = %(pipeline)s
