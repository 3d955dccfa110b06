-- Rights that PostgreSQL has no word for, as GRANT gave them. Run at every start.

-- object_id NULL: on the whole database.
CREATE TABLE IF NOT EXISTS emulator.database_permissions (
    database_id int NOT NULL,
    principal_id int NOT NULL,
    permission varchar(60) NOT NULL,
    object_id int REFERENCES emulator.objects ON DELETE CASCADE,
    UNIQUE NULLS NOT DISTINCT (database_id, principal_id, permission, object_id),
    FOREIGN KEY (database_id, principal_id) REFERENCES emulator.principals ON DELETE CASCADE
);

-- Whether the session's login holds one of these rights in a database, itself, through roles or as everybody; on the
-- object too, if one is named.
CREATE OR REPLACE FUNCTION emulator.caller_holds(database int, rights text[], object int DEFAULT NULL) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    WITH RECURSIVE held AS (
        SELECT p.principal_id FROM emulator.principals p
        WHERE p.database_id = $1 AND (p.type = 'S' AND lower(p.login) = lower(current_setting('emulator.login', true))
                                      OR p.type = 'R' AND p.name = 'public')
        UNION
        SELECT m.role_principal_id FROM emulator.role_members m JOIN held h ON m.member_principal_id = h.principal_id
        WHERE m.database_id = $1
    )
    SELECT EXISTS (SELECT 1 FROM held h JOIN emulator.database_permissions d USING (principal_id)
                   WHERE d.database_id = $1 AND d.permission = ANY ($2) AND (d.object_id IS NULL OR d.object_id = $3))
$$;
