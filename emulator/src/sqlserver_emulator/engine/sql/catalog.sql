-- The emulator's own catalog: databases, schemas, objects and columns as T-SQL declared them.
-- Kept in the transaction of the DDL that changes it. Relations are known by their PostgreSQL oid; objects without a
-- relation (constraints, procedures) take their id from emulator.object_ids. sys_views.sql shows all this as sys.*.
-- Schema emulator and its clock are there before (control/sql/control.sql).

CREATE SCHEMA tsql;

CREATE TABLE emulator.settings (name text PRIMARY KEY, value text NOT NULL);

CREATE SEQUENCE emulator.object_ids START 1000000000;

-- Domains tell sys views' columns apart where PostgreSQL has one type for several T-SQL types.
CREATE DOMAIN emulator.sysname AS varchar(128);
CREATE DOMAIN emulator.bit AS smallint;
CREATE DOMAIN emulator.tinyint AS smallint;
CREATE DOMAIN emulator.datetime AS timestamp(3);
CREATE DOMAIN emulator.char1 AS char(1);
CREATE DOMAIN emulator.char2 AS char(2);
CREATE DOMAIN emulator.sql_variant AS text;

CREATE TABLE emulator.databases (
    database_id int PRIMARY KEY,
    name varchar(128) NOT NULL UNIQUE,
    create_date timestamp(3) NOT NULL DEFAULT emulator.now(),
    is_system boolean NOT NULL DEFAULT false,
    is_cdc_enabled boolean NOT NULL DEFAULT false,
    snapshot_isolation_state smallint NOT NULL DEFAULT 0,
    is_read_committed_snapshot_on boolean NOT NULL DEFAULT false,
    recovery_model smallint NOT NULL DEFAULT 1,
    rowversion_sequence text NOT NULL
);

CREATE TABLE emulator.schemas (
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    schema_id int NOT NULL,
    name varchar(128) NOT NULL,
    principal_id int NOT NULL DEFAULT 1,
    postgres_name text NOT NULL UNIQUE,
    PRIMARY KEY (database_id, schema_id),
    UNIQUE (database_id, name)
);

-- type: U table, V view, P procedure, PK UQ C D F constraints, IF inline function (sys.objects.type, without padding).
-- is_system: an object of schema sys or INFORMATION_SCHEMA, shown by sys.all_objects only.
CREATE TABLE emulator.objects (
    object_id int PRIMARY KEY DEFAULT nextval('emulator.object_ids'),
    database_id int NOT NULL,
    schema_id int NOT NULL,
    name varchar(128) NOT NULL,
    type varchar(2) NOT NULL,
    parent_object_id int NOT NULL DEFAULT 0,
    postgres_name text NOT NULL DEFAULT '',
    create_date timestamp(3) NOT NULL DEFAULT emulator.now(),
    modify_date timestamp(3) NOT NULL DEFAULT emulator.now(),
    is_ms_shipped boolean NOT NULL DEFAULT false,
    is_system boolean NOT NULL DEFAULT false,
    is_tracked_by_cdc boolean NOT NULL DEFAULT false,
    definition text,
    FOREIGN KEY (database_id, schema_id) REFERENCES emulator.schemas ON DELETE CASCADE,
    UNIQUE (database_id, schema_id, name)
);
CREATE INDEX ON emulator.objects (database_id, schema_id, lower(name));
CREATE INDEX ON emulator.objects (parent_object_id);

-- type_name and its facets are those of types.TsqlType; user_type_id names an alias type, if the column was declared so.
CREATE TABLE emulator.columns (
    object_id int NOT NULL REFERENCES emulator.objects ON DELETE CASCADE,
    column_id int NOT NULL,
    name varchar(128) NOT NULL,
    postgres_name text NOT NULL,
    attnum smallint NOT NULL,
    type_name varchar(32) NOT NULL,
    length int NOT NULL DEFAULT 0,
    precision smallint NOT NULL DEFAULT 0,
    scale smallint NOT NULL DEFAULT 0,
    user_type_id int,
    is_nullable boolean NOT NULL DEFAULT true,
    identity_seed numeric(38),
    identity_increment numeric(38),
    computed_definition text,
    is_persisted boolean NOT NULL DEFAULT false,
    default_object_id int NOT NULL DEFAULT 0,
    is_rowguidcol boolean NOT NULL DEFAULT false,
    PRIMARY KEY (object_id, column_id),
    UNIQUE (object_id, attnum)
);

CREATE TABLE emulator.default_constraints (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    parent_object_id int NOT NULL,
    parent_column_id int NOT NULL,
    definition text NOT NULL,
    is_system_named boolean NOT NULL
);

CREATE TABLE emulator.check_constraints (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    parent_object_id int NOT NULL,
    parent_column_id int NOT NULL DEFAULT 0,
    definition text NOT NULL,
    is_system_named boolean NOT NULL
);

-- index_id 1 is the clustered index; the heap's row (0) is shown by the view, not kept. constraint_object_id: of a PK or UQ.
CREATE TABLE emulator.indexes (
    object_id int NOT NULL REFERENCES emulator.objects ON DELETE CASCADE,
    index_id int NOT NULL,
    name varchar(128) NOT NULL,
    postgres_name text NOT NULL,
    is_clustered boolean NOT NULL DEFAULT false,
    is_unique boolean NOT NULL DEFAULT false,
    constraint_object_id int,
    is_system_named boolean NOT NULL DEFAULT false,
    filter_definition text,
    PRIMARY KEY (object_id, index_id),
    UNIQUE (object_id, name)
);

CREATE TABLE emulator.index_columns (
    object_id int NOT NULL,
    index_id int NOT NULL,
    index_column_id int NOT NULL,
    column_id int NOT NULL,
    key_ordinal smallint NOT NULL,
    is_descending_key boolean NOT NULL DEFAULT false,
    is_included_column boolean NOT NULL DEFAULT false,
    PRIMARY KEY (object_id, index_id, index_column_id),
    FOREIGN KEY (object_id, index_id) REFERENCES emulator.indexes ON DELETE CASCADE
);

-- actions: 0 no action, 1 cascade, 2 set null, 3 set default
CREATE TABLE emulator.foreign_keys (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    parent_object_id int NOT NULL,
    referenced_object_id int NOT NULL,
    key_index_id int NOT NULL,
    delete_action smallint NOT NULL DEFAULT 0,
    update_action smallint NOT NULL DEFAULT 0,
    is_system_named boolean NOT NULL DEFAULT false,
    is_disabled boolean NOT NULL DEFAULT false,
    is_not_trusted boolean NOT NULL DEFAULT false
);

CREATE TABLE emulator.foreign_key_columns (
    object_id int NOT NULL REFERENCES emulator.foreign_keys ON DELETE CASCADE,
    ordinal int NOT NULL,
    parent_column_id int NOT NULL,
    referenced_column_id int NOT NULL,
    PRIMARY KEY (object_id, ordinal)
);

CREATE TABLE emulator.user_types (
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    user_type_id int NOT NULL,
    schema_id int NOT NULL,
    name varchar(128) NOT NULL,
    type_name varchar(32) NOT NULL,
    length int NOT NULL DEFAULT 0,
    precision smallint NOT NULL DEFAULT 0,
    scale smallint NOT NULL DEFAULT 0,
    is_nullable boolean NOT NULL DEFAULT true,
    PRIMARY KEY (database_id, user_type_id),
    UNIQUE (database_id, schema_id, name)
);

-- A table-valued function expanded where it is called; parameters: [{"name": "@from_lsn", "type": "binary", "length": 10}, …]
CREATE TABLE emulator.inline_functions (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    parameters jsonb NOT NULL,
    body text NOT NULL
);

-- Scalar functions called as [database.]schema.name(...): those of schema sys serve every database (database_id 0).
CREATE TABLE emulator.scalar_functions (
    database_id int NOT NULL DEFAULT 0,
    schema varchar(128) NOT NULL,
    name varchar(128) NOT NULL,
    postgres_function text NOT NULL,
    PRIMARY KEY (database_id, schema, name)
);

-- password_hash is sha256 of salt || password; NULL: the password is that of the running server (sa).
CREATE TABLE emulator.logins (
    principal_id int PRIMARY KEY,
    name varchar(128) NOT NULL UNIQUE,
    password_salt bytea,
    password_hash bytea,
    is_sysadmin boolean NOT NULL DEFAULT false,
    is_disabled boolean NOT NULL DEFAULT false,
    default_database varchar(128) NOT NULL DEFAULT 'master',
    create_date timestamp(3) NOT NULL DEFAULT emulator.now()
);

-- Database principals. type S: user (of a login), R: role. postgres_role is the PostgreSQL role that GRANTs go to.
CREATE TABLE emulator.principals (
    database_id int NOT NULL REFERENCES emulator.databases ON DELETE CASCADE,
    principal_id int NOT NULL,
    name varchar(128) NOT NULL,
    type varchar(1) NOT NULL,
    login varchar(128),
    default_schema varchar(128),
    is_fixed_role boolean NOT NULL DEFAULT false,
    postgres_role text NOT NULL,
    create_date timestamp(3) NOT NULL DEFAULT emulator.now(),
    PRIMARY KEY (database_id, principal_id),
    UNIQUE (database_id, name)
);

CREATE TABLE emulator.role_members (
    database_id int NOT NULL,
    role_principal_id int NOT NULL,
    member_principal_id int NOT NULL,
    PRIMARY KEY (database_id, role_principal_id, member_principal_id),
    FOREIGN KEY (database_id, role_principal_id) REFERENCES emulator.principals ON DELETE CASCADE,
    FOREIGN KEY (database_id, member_principal_id) REFERENCES emulator.principals ON DELETE CASCADE
);

-- Sessions of the running server, for sys.dm_exec_sessions; emptied when the server starts.
CREATE UNLOGGED TABLE emulator.sessions (
    session_id smallint PRIMARY KEY,
    backend_pid int NOT NULL UNIQUE,
    login varchar(128) NOT NULL,
    application varchar(128) NOT NULL,
    database_name varchar(128) NOT NULL,
    login_time timestamp(3) NOT NULL DEFAULT emulator.now(),
    transaction_isolation_level smallint NOT NULL DEFAULT 2,
    encrypted boolean NOT NULL DEFAULT false
);

-- The T-SQL type of a PostgreSQL column, for relations that are not declared in T-SQL (system views, change tables).
CREATE FUNCTION emulator.tsql_type_name(type oid) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN n.nspname IN ('emulator', 'tsql') THEN
            CASE t.typname WHEN 'char1' THEN 'char' WHEN 'char2' THEN 'char' ELSE t.typname::text END
        ELSE CASE t.typname::text
            WHEN 'bool' THEN 'bit' WHEN 'int2' THEN 'smallint' WHEN 'int4' THEN 'int' WHEN 'int8' THEN 'bigint'
            WHEN 'numeric' THEN 'decimal' WHEN 'float4' THEN 'real' WHEN 'float8' THEN 'float'
            WHEN 'varchar' THEN 'nvarchar' WHEN 'text' THEN 'nvarchar' WHEN 'bpchar' THEN 'nchar' WHEN 'name' THEN 'sysname'
            WHEN 'bytea' THEN 'varbinary' WHEN 'uuid' THEN 'uniqueidentifier' WHEN 'date' THEN 'date'
            WHEN 'time' THEN 'time' WHEN 'timestamp' THEN 'datetime2' ELSE 'sql_variant' END
        END
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = type
$$;

CREATE FUNCTION emulator.tsql_length(type oid, typmod int) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE t.typname::text
        WHEN 'sysname' THEN 128 WHEN 'name' THEN 128 WHEN 'char1' THEN 1 WHEN 'char2' THEN 2
        WHEN 'varchar' THEN CASE WHEN typmod > 4 THEN typmod - 4 ELSE -1 END
        WHEN 'bpchar' THEN CASE WHEN typmod > 4 THEN typmod - 4 ELSE 1 END
        WHEN 'text' THEN -1 WHEN 'bytea' THEN -1 ELSE 0 END
    FROM pg_type t WHERE t.oid = type
$$;

-- Enter a relation made by the emulator itself (a system view, a change table) into the catalog; returns its object id.
CREATE FUNCTION emulator.register_relation(database int, schema text, relation_name text, type text, system boolean)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    home emulator.schemas%ROWTYPE;
    relation oid;
BEGIN
    SELECT * INTO STRICT home FROM emulator.schemas s WHERE s.database_id = database AND s.name = schema;
    relation := format('%I.%I', home.postgres_name, relation_name)::regclass;
    INSERT INTO emulator.objects (object_id, database_id, schema_id, name, type, postgres_name, is_ms_shipped, is_system)
    VALUES (relation::int, database, home.schema_id, relation_name, type, relation_name, true, system);
    PERFORM emulator.register_columns(ARRAY[relation]);
    RETURN relation::int;
END $$;

-- Tell running servers that the catalog changed (for processes beside the server; its own sessions know).
CREATE FUNCTION emulator.notify_catalog_changed() RETURNS void LANGUAGE sql AS $$ SELECT pg_notify('emulator_catalog', '') $$;

-- Functions read the catalog with the caller's rights; only password hashes are nobody's business.
GRANT USAGE ON SCHEMA emulator, tsql TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA emulator TO PUBLIC;
REVOKE SELECT ON emulator.logins FROM PUBLIC;
