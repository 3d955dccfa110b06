-- Extended properties: descriptions that tools keep with databases, schemas, tables, columns and the like.

CREATE TABLE IF NOT EXISTS emulator.extended_properties (
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    class smallint NOT NULL,
    major_id int NOT NULL,
    minor_id int NOT NULL,
    name varchar(128) NOT NULL,
    value text,
    PRIMARY KEY (database_id, class, major_id, minor_id, name)
);
GRANT SELECT ON emulator.extended_properties TO PUBLIC;

-- Everything that may have a property, with the words and names of its levels. class, major_id and minor_id are those of
-- sys.extended_properties: 0 database, 1 object or column, 2 parameter, 3 schema, 4 principal, 6 type, 7 index.
DROP VIEW IF EXISTS emulator.property_targets CASCADE;
CREATE VIEW emulator.property_targets AS
WITH objects AS (
    SELECT o.database_id, s.name AS schema_name, o.object_id, o.parent_object_id, o.name, o.type,
        CASE o.type WHEN 'U' THEN 'TABLE' WHEN 'V' THEN 'VIEW' WHEN 'P' THEN 'PROCEDURE' WHEN 'SO' THEN 'SEQUENCE'
            WHEN 'SN' THEN 'SYNONYM' WHEN 'FN' THEN 'FUNCTION' WHEN 'IF' THEN 'FUNCTION' WHEN 'TF' THEN 'FUNCTION' END AS word
    FROM emulator.visible_objects o
    JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id WHERE NOT o.is_system)
SELECT d.database_id, 0 AS class, 0 AS major_id, 0 AS minor_id, NULL::text AS type0, NULL::text AS name0, NULL::text AS type1,
    NULL::text AS name1, NULL::text AS type2, NULL::text AS name2 FROM emulator.databases d
UNION ALL SELECT s.database_id, 3, s.schema_id, 0, 'SCHEMA', s.name, NULL, NULL, NULL, NULL FROM emulator.schemas s
UNION ALL SELECT p.database_id, 4, p.principal_id, 0, 'USER', p.name, NULL, NULL, NULL, NULL FROM emulator.principals p
UNION ALL SELECT t.database_id, 6, t.user_type_id, 0, 'SCHEMA', s.name, 'TYPE', t.name, NULL, NULL
    FROM emulator.user_types t JOIN emulator.schemas s ON s.database_id = t.database_id AND s.schema_id = t.schema_id
UNION ALL SELECT o.database_id, 1, o.object_id, 0, 'SCHEMA', o.schema_name, o.word, o.name, NULL, NULL FROM objects o
    WHERE o.word IS NOT NULL
UNION ALL SELECT o.database_id, 1, o.object_id, c.column_id, 'SCHEMA', o.schema_name, o.word, o.name, 'COLUMN', c.name
    FROM objects o JOIN emulator.columns c ON c.object_id = o.object_id
UNION ALL SELECT o.database_id, 7, o.object_id, i.index_id, 'SCHEMA', o.schema_name, o.word, o.name, 'INDEX', i.name
    FROM objects o JOIN emulator.indexes i ON i.object_id = o.object_id
UNION ALL SELECT o.database_id, 1, k.object_id, 0, 'SCHEMA', o.schema_name, o.word, o.name,
        CASE k.type WHEN 'TR' THEN 'TRIGGER' ELSE 'CONSTRAINT' END, k.name
    FROM objects o JOIN objects k ON k.parent_object_id = o.object_id WHERE k.type IN ('PK', 'UQ', 'C', 'D', 'F', 'TR')
UNION ALL SELECT o.database_id, 2, o.object_id, p.n::int, 'SCHEMA', o.schema_name, o.word, o.name, 'PARAMETER', p.parameter ->> 'name'
    FROM objects o JOIN emulator.parameter_lists l ON l.object_id = o.object_id,
        jsonb_array_elements(l.parameters) WITH ORDINALITY AS p (parameter, n);

-- The target of up to three levels, or no row. USER in front of an object means the schema of that name, as long ago.
CREATE OR REPLACE FUNCTION emulator.property_target(database int, type0 text, name0 text, type1 text, name1 text, type2 text, name2 text)
RETURNS TABLE (class int, major_id int, minor_id int) LANGUAGE sql STABLE AS $$
    SELECT t.class, t.major_id, t.minor_id FROM emulator.property_targets t
    WHERE t.database_id = $1 AND t.type0 IS NOT DISTINCT FROM CASE WHEN $4 IS NOT NULL AND upper($2) = 'USER' THEN 'SCHEMA' ELSE upper($2) END
      AND lower(t.name0) IS NOT DISTINCT FROM lower($3)
      AND t.type1 IS NOT DISTINCT FROM upper($4) AND lower(t.name1) IS NOT DISTINCT FROM lower($5)
      AND t.type2 IS NOT DISTINCT FROM upper($6) AND lower(t.name2) IS NOT DISTINCT FROM lower($7)
$$;

-- The rows of fn_listextendedproperty: the properties of everything at the last level that is given.
CREATE OR REPLACE FUNCTION emulator.list_properties(database int, property text, type0 text, name0 text, type1 text, name1 text, type2 text, name2 text)
RETURNS TABLE (objtype varchar(128), objname varchar(128), name varchar(128), value text) LANGUAGE sql STABLE AS $$
    SELECT coalesce(t.type2, t.type1, t.type0), coalesce(t.name2, t.name1, t.name0), p.name, p.value
    FROM emulator.property_targets t JOIN emulator.extended_properties p ON p.database_id = t.database_id
        AND p.class = t.class AND p.major_id = t.major_id AND p.minor_id = t.minor_id
    WHERE t.database_id = $1 AND ($2 IS NULL OR lower(p.name) = lower($2))
      AND t.type0 IS NOT DISTINCT FROM CASE WHEN $5 IS NOT NULL AND upper($3) = 'USER' THEN 'SCHEMA' ELSE upper($3) END
      AND ($4 IS NULL OR lower(t.name0) = lower($4))
      AND t.type1 IS NOT DISTINCT FROM upper($5) AND ($6 IS NULL OR lower(t.name1) = lower($6))
      AND t.type2 IS NOT DISTINCT FROM upper($7) AND ($8 IS NULL OR lower(t.name2) = lower($8))
    ORDER BY t.major_id, t.minor_id, p.name
$$;
