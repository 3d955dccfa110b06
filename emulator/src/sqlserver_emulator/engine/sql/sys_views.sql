-- sys.* and INFORMATION_SCHEMA.*, once for all databases: run at every start. A view with a column "database" holds the
-- rows of every database; emulator.install_system_views makes each database's own view of it, without that column.
-- Where clients rely on the order rows have in a server without asking for it, the view has an ORDER BY.
-- Column names, their order and their types are SQL Server 2022's; where PostgreSQL has one type for several of T-SQL's,
-- a domain of schema emulator says which.

-- Rows without a database: those of views that wait in a spare schema (databases.py), which go with the schemas here.
ALTER TABLE emulator.objects ALTER COLUMN database_id DROP NOT NULL;
DELETE FROM emulator.objects WHERE database_id IS NULL;
DROP SCHEMA IF EXISTS emulator_sys CASCADE;
DROP SCHEMA IF EXISTS emulator_information_schema CASCADE;
CREATE SCHEMA emulator_sys;
CREATE SCHEMA emulator_information_schema;

-- The functions of types.sql for where the row of system_types is not at hand.
CREATE OR REPLACE FUNCTION emulator.type_max_length(type_name text, length int, digits int, scale int)
RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT emulator.type_max_length(type_name, length, digits, scale,
        (SELECT t.max_length::smallint FROM emulator_sys.system_types t WHERE t.tsql_name = type_name))
$$;

CREATE OR REPLACE FUNCTION emulator.type_precision(type_name text, digits int, scale int) RETURNS smallint
LANGUAGE sql IMMUTABLE AS $$
    SELECT emulator.type_precision(type_name, digits, scale,
        (SELECT t.precision::smallint FROM emulator_sys.system_types t WHERE t.tsql_name = type_name))
$$;

CREATE OR REPLACE FUNCTION emulator.type_scale(type_name text, scale int) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT emulator.type_scale(type_name, scale,
        (SELECT t.scale::smallint FROM emulator_sys.system_types t WHERE t.tsql_name = type_name))
$$;

CREATE OR REPLACE FUNCTION emulator.count_rows(relation int) RETURNS bigint LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    counted bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM %s', relation::oid::regclass) INTO counted;
    RETURN counted;
EXCEPTION WHEN undefined_table OR syntax_error THEN
    -- It was dropped since the view listed it: no name, or a number in its place.
    RETURN NULL;
END $$;

-- Pages of 8,192 bytes, as PostgreSQL has them. A heap's and a clustered index's are the table's own, with its large
-- values apart (allocation unit type 2), and those of the index that PostgreSQL keeps beside it.
CREATE OR REPLACE FUNCTION emulator.used_pages(relation int, index_name text, is_table boolean, unit_type int) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (CASE
        WHEN unit_type = 2 THEN coalesce(pg_total_relation_size(nullif(t.reltoastrelid, 0)), 0)
        ELSE CASE WHEN is_table THEN pg_relation_size(t.oid) ELSE 0 END + coalesce((
            SELECT pg_relation_size(i.oid) FROM pg_class i
            WHERE i.relnamespace = t.relnamespace AND i.relname = index_name AND i.relkind = 'i'), 0)
    END) / 8192
    FROM pg_class t WHERE t.oid = relation::oid
$$;

CREATE TABLE emulator_sys.system_types (
    tsql_name text PRIMARY KEY, name varchar(128), system_type_id int, user_type_id int, max_length int, precision int,
    scale int, type_literal text
);
INSERT INTO emulator_sys.system_types SELECT * FROM emulator.system_types();
-- The type functions read it with the rights of whoever asks a system view.
GRANT USAGE ON SCHEMA emulator_sys TO PUBLIC;
GRANT SELECT ON emulator_sys.system_types TO PUBLIC;

-- Objects -------------------------------------------------------------------------------------------------------------

CREATE VIEW emulator_sys.all_objects AS
SELECT o.database_id AS database, o.name::emulator.sysname AS name, o.object_id, NULL::int AS principal_id, o.schema_id,
    o.parent_object_id, o.type::emulator.char2 AS type,
    (CASE o.type WHEN 'U' THEN 'USER_TABLE' WHEN 'V' THEN 'VIEW' WHEN 'P' THEN 'SQL_STORED_PROCEDURE'
        WHEN 'PK' THEN 'PRIMARY_KEY_CONSTRAINT' WHEN 'UQ' THEN 'UNIQUE_CONSTRAINT' WHEN 'C' THEN 'CHECK_CONSTRAINT'
        WHEN 'D' THEN 'DEFAULT_CONSTRAINT' WHEN 'F' THEN 'FOREIGN_KEY_CONSTRAINT'
        WHEN 'IF' THEN 'SQL_INLINE_TABLE_VALUED_FUNCTION' WHEN 'FN' THEN 'SQL_SCALAR_FUNCTION'
        WHEN 'TF' THEN 'SQL_TABLE_VALUED_FUNCTION' WHEN 'TR' THEN 'SQL_TRIGGER' WHEN 'SO' THEN 'SEQUENCE_OBJECT'
        WHEN 'SN' THEN 'SYNONYM' WHEN 'SP' THEN 'SECURITY_POLICY' END)::varchar(60) AS type_desc,
    o.create_date::emulator.datetime AS create_date, o.modify_date::emulator.datetime AS modify_date,
    o.is_ms_shipped::int::emulator.bit AS is_ms_shipped, 0::emulator.bit AS is_published,
    0::emulator.bit AS is_schema_published
FROM emulator.visible_objects o;

CREATE VIEW emulator_sys.objects AS
SELECT a.* FROM emulator_sys.all_objects a JOIN emulator.visible_objects o ON o.object_id = a.object_id WHERE NOT o.is_system;

CREATE VIEW emulator_sys.tables AS
SELECT a.*, 1 AS lob_data_space_id, NULL::int AS filestream_data_space_id,
    (SELECT max(c.column_id) FROM emulator.columns c WHERE c.object_id = a.object_id) AS max_column_id_used,
    0::emulator.bit AS lock_on_bulk_load, 1::emulator.bit AS uses_ansi_nulls, o.is_streamed::int::emulator.bit AS is_replicated,
    0::emulator.bit AS has_replication_filter, 0::emulator.bit AS is_merge_published,
    0::emulator.bit AS is_sync_tran_subscribed, 0::emulator.bit AS has_unchecked_assembly_data, 0 AS text_in_row_limit,
    0::emulator.bit AS large_value_types_out_of_row, o.is_tracked_by_cdc::int::emulator.bit AS is_tracked_by_cdc,
    0::emulator.tinyint AS lock_escalation, 'TABLE'::varchar(60) AS lock_escalation_desc, 0::emulator.bit AS is_filetable,
    0::emulator.bit AS is_memory_optimized, 0::emulator.tinyint AS durability,
    'SCHEMA_AND_DATA'::varchar(60) AS durability_desc, 0::emulator.tinyint AS temporal_type,
    'NON_TEMPORAL_TABLE'::varchar(60) AS temporal_type_desc, NULL::int AS history_table_id,
    0::emulator.bit AS is_remote_data_archive_enabled, 0::emulator.bit AS is_external, NULL::int AS history_retention_period,
    NULL::int AS history_retention_period_unit, NULL::varchar(10) AS history_retention_period_unit_desc,
    0::emulator.bit AS is_node, 0::emulator.bit AS is_edge, NULL::int AS data_retention_period,
    NULL::int AS data_retention_period_unit, NULL::varchar(10) AS data_retention_period_unit_desc,
    0::emulator.tinyint AS ledger_type, 'NON_LEDGER_TABLE'::varchar(60) AS ledger_type_desc, NULL::int AS ledger_view_id,
    0::emulator.bit AS is_dropped_ledger_table
FROM emulator_sys.objects a JOIN emulator.visible_objects o ON o.object_id = a.object_id WHERE o.type = 'U';

CREATE VIEW emulator_sys.all_views AS
SELECT a.*, 0::emulator.bit AS is_replicated, 0::emulator.bit AS has_replication_filter,
    0::emulator.bit AS has_opaque_metadata, 0::emulator.bit AS has_unchecked_assembly_data,
    0::emulator.bit AS with_check_option, 0::emulator.bit AS is_date_correlation_view, 0::emulator.bit AS is_tracked_by_cdc
FROM emulator_sys.all_objects a WHERE a.type = 'V';

CREATE VIEW emulator_sys.views AS
SELECT v.* FROM emulator_sys.all_views v JOIN emulator.visible_objects o ON o.object_id = v.object_id WHERE NOT o.is_system;

CREATE VIEW emulator_sys.system_objects AS
SELECT a.* FROM emulator_sys.all_objects a JOIN emulator.visible_objects o ON o.object_id = a.object_id WHERE o.is_system;

CREATE VIEW emulator_sys.system_views AS
SELECT v.* FROM emulator_sys.all_views v JOIN emulator.visible_objects o ON o.object_id = v.object_id WHERE o.is_system;

CREATE VIEW emulator_sys.procedures AS
SELECT a.*, 0::emulator.bit AS is_auto_executed, 0::emulator.bit AS is_execution_replicated,
    0::emulator.bit AS is_repl_serializable_only, 0::emulator.bit AS skips_repl_constraints
FROM emulator_sys.objects a WHERE a.type = 'P';

CREATE VIEW emulator_sys.sql_modules AS
SELECT o.database_id AS database, o.object_id, o.definition, 1::emulator.bit AS uses_ansi_nulls,
    1::emulator.bit AS uses_quoted_identifier, 0::emulator.bit AS is_schema_bound,
    0::emulator.bit AS uses_database_collation, 0::emulator.bit AS is_recompiled, 0::emulator.bit AS null_on_null_input,
    NULL::int AS execute_as_principal_id, 0::emulator.bit AS uses_native_compilation, 0::emulator.bit AS is_inlineable,
    0::emulator.bit AS inline_type
FROM emulator.visible_objects o WHERE o.type IN ('P', 'V', 'IF', 'FN', 'TF', 'TR') AND NOT o.is_system;

CREATE VIEW emulator_sys.triggers AS
SELECT o.database_id AS database, o.name::emulator.sysname AS name, o.object_id, 1::emulator.tinyint AS parent_class,
    'OBJECT_OR_COLUMN'::varchar(60) AS parent_class_desc, t.parent_object_id AS parent_id, o.type::emulator.char2 AS type,
    'SQL_TRIGGER'::varchar(60) AS type_desc, o.create_date::emulator.datetime AS create_date,
    o.modify_date::emulator.datetime AS modify_date, 0::emulator.bit AS is_ms_shipped,
    t.is_disabled::int::emulator.bit AS is_disabled, 0::emulator.bit AS is_not_for_replication,
    t.is_instead_of::int::emulator.bit AS is_instead_of_trigger
FROM emulator.triggers t JOIN emulator.visible_objects o ON o.object_id = t.object_id;

CREATE VIEW emulator_sys.sequences AS
SELECT a.*, q.start_value::emulator.sql_variant AS start_value, q.increment::emulator.sql_variant AS increment,
    q.minimum_value::emulator.sql_variant AS minimum_value, q.maximum_value::emulator.sql_variant AS maximum_value,
    q.is_cycling::int::emulator.bit AS is_cycling, (q.cache_size IS NOT NULL)::int::emulator.bit AS is_cached,
    q.cache_size, t.system_type_id::emulator.tinyint AS system_type_id, t.user_type_id,
    emulator.type_precision(q.type_name, q.precision, 0)::emulator.tinyint AS precision, 0::emulator.tinyint AS scale,
    coalesce(pg_sequence_last_value(q.object_id::oid::regclass), q.start_value)::text::emulator.sql_variant AS current_value,
    0::emulator.bit AS is_exhausted, NULL::emulator.sql_variant AS last_used_value
FROM emulator_sys.objects a JOIN emulator.sequences q ON q.object_id = a.object_id
JOIN emulator_sys.system_types t ON t.tsql_name = q.type_name;

CREATE VIEW emulator_sys.trigger_events AS
SELECT o.database_id AS database, t.object_id, (CASE e.event WHEN 'INSERT' THEN 1 WHEN 'UPDATE' THEN 2 ELSE 3 END) AS type,
    e.event::varchar(128) AS type_desc, 0::emulator.bit AS is_first, 0::emulator.bit AS is_last,
    NULL::int AS event_group_type, NULL::varchar(128) AS event_group_type_desc, 1::emulator.bit AS is_trigger_event
FROM emulator.triggers t JOIN emulator.visible_objects o ON o.object_id = t.object_id, unnest(t.events) AS e(event);

CREATE VIEW emulator_sys.synonyms AS
SELECT a.*, y.base_object_name FROM emulator_sys.all_objects a JOIN emulator.synonyms y ON y.object_id = a.object_id;

CREATE VIEW emulator_sys.security_policies AS
SELECT a.database, a.name, a.object_id, a.principal_id, a.schema_id, a.parent_object_id, a.type, a.type_desc, a.create_date,
    a.modify_date, a.is_ms_shipped, p.is_enabled::int::emulator.bit AS is_enabled, 0::emulator.bit AS is_not_for_replication,
    1::emulator.bit AS uses_database_collation, (NOT p.is_schema_bound)::int::emulator.bit AS is_schemabinding_enabled
FROM emulator_sys.all_objects a JOIN emulator.security_policies p ON p.object_id = a.object_id
WHERE emulator.caller_sees_policies(a.database, a.object_id);

CREATE VIEW emulator_sys.security_predicates AS
SELECT a.database, p.object_id, p.predicate_id AS security_predicate_id, p.target_object_id,
    p.definition AS predicate_definition, 0 AS predicate_type, 'FILTER'::varchar(60) AS predicate_type_desc,
    NULL::int AS operation, NULL::varchar(60) AS operation_desc
FROM emulator_sys.security_policies a JOIN emulator.security_predicates p ON p.object_id = a.object_id;

CREATE VIEW emulator_sys.schemas AS
SELECT s.database_id AS database, s.name::emulator.sysname AS name, s.schema_id, s.principal_id FROM emulator.schemas s
UNION ALL
SELECT p.database_id, p.name::emulator.sysname, p.principal_id, p.principal_id FROM emulator.principals p
WHERE p.is_fixed_role AND p.name <> 'public';

-- Columns and types ---------------------------------------------------------------------------------------------------

-- Not in an order, which would keep PostgreSQL from reading only the columns that a query asks for.
CREATE VIEW emulator.described_columns AS
SELECT o.database_id AS database, c.object_id, c.name::emulator.sysname AS name, c.column_id,
    t.system_type_id::emulator.tinyint AS system_type_id, coalesce(c.user_type_id, t.user_type_id) AS user_type_id,
    emulator.type_max_length(c.type_name, c.length, c.precision, c.scale, t.max_length::smallint) AS max_length,
    emulator.type_precision(c.type_name, c.precision, c.scale, t.precision::smallint)::emulator.tinyint AS precision,
    emulator.type_scale(c.type_name, c.scale, t.scale::smallint)::emulator.tinyint AS scale,
    (CASE WHEN emulator.is_character_type(c.type_name) THEN coalesce(c.collation_name, d.collation_name) END)::emulator.sysname AS collation_name,
    c.is_nullable::int::emulator.bit AS is_nullable,
    (c.type_name IN ('char', 'varchar', 'nchar', 'nvarchar', 'binary', 'varbinary', 'sysname'))::int::emulator.bit AS is_ansi_padded,
    c.is_rowguidcol::int::emulator.bit AS is_rowguidcol, (c.identity_seed IS NOT NULL)::int::emulator.bit AS is_identity,
    (c.computed_definition IS NOT NULL)::int::emulator.bit AS is_computed, 0::emulator.bit AS is_filestream,
    0::emulator.bit AS is_replicated, 0::emulator.bit AS is_non_sql_subscribed, 0::emulator.bit AS is_merge_published,
    0::emulator.bit AS is_dts_replicated, 0::emulator.bit AS is_xml_document, 0 AS xml_collection_id, c.default_object_id,
    0 AS rule_object_id, 0::emulator.bit AS is_sparse, 0::emulator.bit AS is_column_set,
    0::emulator.tinyint AS generated_always_type, 'NOT_APPLICABLE'::varchar(60) AS generated_always_type_desc,
    NULL::int AS encryption_type, NULL::varchar(64) AS encryption_type_desc,
    NULL::emulator.sysname AS encryption_algorithm_name, NULL::int AS column_encryption_key_id,
    NULL::emulator.sysname AS column_encryption_key_database_name, 0::emulator.bit AS is_hidden,
    (c.masking_function IS NOT NULL)::int::emulator.bit AS is_masked, NULL::int AS graph_type, NULL::varchar(60) AS graph_type_desc, 0::emulator.bit AS is_data_deletion_filter_column,
    0 AS ledger_view_column_type, 'NOT_LEDGER_VIEW_COLUMN'::varchar(60) AS ledger_view_column_type_desc,
    0::emulator.bit AS is_dropped_ledger_column
FROM emulator.columns c
JOIN emulator.visible_objects o ON o.object_id = c.object_id
JOIN emulator.databases d ON d.database_id = o.database_id
JOIN emulator_sys.system_types t ON t.tsql_name = c.type_name;

CREATE VIEW emulator_sys.all_columns AS
SELECT a.* FROM emulator.described_columns a ORDER BY a.object_id, a.column_id;

CREATE VIEW emulator_sys.columns AS
SELECT a.* FROM emulator.described_columns a JOIN emulator.visible_objects o ON o.object_id = a.object_id WHERE NOT o.is_system
ORDER BY a.object_id, a.column_id;

CREATE VIEW emulator_sys.masked_columns AS
SELECT a.*, c.masking_function FROM emulator_sys.columns a
JOIN emulator.columns c ON c.object_id = a.object_id AND c.column_id = a.column_id WHERE c.masking_function IS NOT NULL;

CREATE VIEW emulator_sys.system_columns AS
SELECT a.* FROM emulator_sys.all_columns a JOIN emulator.visible_objects o ON o.object_id = a.object_id WHERE o.is_system;

CREATE VIEW emulator_sys.identity_columns AS
SELECT a.database, a.object_id, a.name, a.column_id, a.system_type_id, a.user_type_id, a.max_length, a.precision, a.scale,
    a.collation_name, a.is_nullable, a.is_ansi_padded, a.is_rowguidcol, a.is_identity, a.is_filestream, a.is_replicated,
    a.is_non_sql_subscribed, a.is_merge_published, a.is_dts_replicated, a.is_xml_document, a.xml_collection_id,
    a.default_object_id, a.rule_object_id, c.identity_seed::numeric(38, 0) AS seed_value,
    c.identity_increment::numeric(38, 0) AS increment_value,
    pg_sequence_last_value(pg_get_serial_sequence(format('%I.%I', s.postgres_name, o.postgres_name), c.postgres_name)::regclass)::numeric(38, 0)
        AS last_value,
    0::emulator.bit AS is_not_for_replication, a.is_computed, a.is_sparse, a.is_column_set, a.generated_always_type,
    a.generated_always_type_desc, a.is_hidden, a.is_masked
FROM emulator_sys.columns a
JOIN emulator.columns c ON c.object_id = a.object_id AND c.column_id = a.column_id
JOIN emulator.visible_objects o ON o.object_id = a.object_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
WHERE c.identity_seed IS NOT NULL;

CREATE VIEW emulator_sys.computed_columns AS
SELECT a.database, a.object_id, a.name, a.column_id, a.system_type_id, a.user_type_id, a.max_length, a.precision, a.scale,
    a.collation_name, a.is_nullable, a.is_ansi_padded, a.is_rowguidcol, a.is_identity, a.is_filestream, a.is_replicated,
    a.is_non_sql_subscribed, a.is_merge_published, a.is_dts_replicated, a.is_xml_document, a.xml_collection_id,
    a.default_object_id, a.rule_object_id, c.computed_definition AS definition,
    1::emulator.bit AS uses_database_collation, c.is_persisted::int::emulator.bit AS is_persisted, a.is_computed, a.is_sparse,
    a.is_column_set, a.generated_always_type, a.generated_always_type_desc, a.is_hidden, a.is_masked
FROM emulator_sys.columns a
JOIN emulator.columns c ON c.object_id = a.object_id AND c.column_id = a.column_id
WHERE c.computed_definition IS NOT NULL;

CREATE VIEW emulator_sys.types AS
SELECT d.database_id AS database, t.name::emulator.sysname AS name, t.system_type_id::emulator.tinyint AS system_type_id,
    t.user_type_id, 4 AS schema_id, NULL::int AS principal_id, t.max_length::smallint AS max_length,
    t.precision::emulator.tinyint AS precision, t.scale::emulator.tinyint AS scale,
    (CASE WHEN emulator.is_character_type(t.tsql_name) THEN d.collation_name END)::emulator.sysname AS collation_name,
    (t.tsql_name <> 'sysname')::int::emulator.bit AS is_nullable, 0::emulator.bit AS is_user_defined,
    0::emulator.bit AS is_assembly_type, 0 AS default_object_id, 0 AS rule_object_id, 0::emulator.bit AS is_table_type
FROM emulator.databases d CROSS JOIN emulator_sys.system_types t
UNION ALL
SELECT u.database_id, u.name::emulator.sysname, t.system_type_id::emulator.tinyint, u.user_type_id, u.schema_id, NULL,
    emulator.type_max_length(u.type_name, u.length, u.precision, u.scale, t.max_length::smallint),
    emulator.type_precision(u.type_name, u.precision, u.scale, t.precision::smallint)::emulator.tinyint,
    emulator.type_scale(u.type_name, u.scale, t.scale::smallint)::emulator.tinyint,
    (CASE WHEN emulator.is_character_type(u.type_name) THEN d.collation_name END)::emulator.sysname,
    u.is_nullable::int::emulator.bit, 1::emulator.bit, 0::emulator.bit, 0, 0, 0::emulator.bit
FROM emulator.user_types u JOIN emulator_sys.system_types t ON t.tsql_name = u.type_name
JOIN emulator.databases d ON d.database_id = u.database_id
UNION ALL
SELECT u.database_id, u.name::emulator.sysname, 243, u.user_type_id, u.schema_id, NULL, -1, 0, 0, NULL, 0, 1, 0, 0, 0, 1
FROM emulator.user_types u WHERE u.table_columns <> '';

-- Indexes and constraints ---------------------------------------------------------------------------------------------

CREATE VIEW emulator_sys.indexes AS
SELECT o.database_id AS database, i.object_id, i.name::emulator.sysname AS name, i.index_id,
    (CASE WHEN i.is_clustered THEN 1 ELSE 2 END)::emulator.tinyint AS type,
    (CASE WHEN i.is_clustered THEN 'CLUSTERED' ELSE 'NONCLUSTERED' END)::varchar(60) AS type_desc,
    i.is_unique::int::emulator.bit AS is_unique, 1 AS data_space_id, 0::emulator.bit AS ignore_dup_key,
    (coalesce(k.type, '') = 'PK')::int::emulator.bit AS is_primary_key,
    (coalesce(k.type, '') = 'UQ')::int::emulator.bit AS is_unique_constraint, 0::emulator.tinyint AS fill_factor,
    0::emulator.bit AS is_padded, 0::emulator.bit AS is_disabled, 0::emulator.bit AS is_hypothetical,
    0::emulator.bit AS is_ignored_in_optimization, 1::emulator.bit AS allow_row_locks, 1::emulator.bit AS allow_page_locks,
    (i.filter_definition IS NOT NULL)::int::emulator.bit AS has_filter, i.filter_definition, NULL::int AS compression_delay,
    0::emulator.bit AS suppress_dup_key_messages, 0::emulator.bit AS auto_created,
    0::emulator.bit AS optimize_for_sequential_key
FROM emulator.indexes i JOIN emulator.visible_objects o ON o.object_id = i.object_id
LEFT JOIN emulator.visible_objects k ON k.object_id = i.constraint_object_id
UNION ALL
SELECT o.database_id, o.object_id, NULL::emulator.sysname, 0, 0::emulator.tinyint, 'HEAP'::varchar(60), 0::emulator.bit, 1, 0::emulator.bit,
    0::emulator.bit, 0::emulator.bit, 0::emulator.tinyint, 0::emulator.bit, 0::emulator.bit, 0::emulator.bit,
    0::emulator.bit, 1::emulator.bit, 1::emulator.bit, 0::emulator.bit, NULL, NULL, 0::emulator.bit, 0::emulator.bit,
    0::emulator.bit
FROM emulator.visible_objects o
WHERE o.type = 'U' AND NOT EXISTS (SELECT FROM emulator.indexes i WHERE i.object_id = o.object_id AND i.index_id = 1);

CREATE VIEW emulator_sys.index_columns AS
SELECT o.database_id AS database, c.object_id, c.index_id, c.index_column_id, c.column_id,
    c.key_ordinal::emulator.tinyint AS key_ordinal, 0::emulator.tinyint AS partition_ordinal,
    c.is_descending_key::int::emulator.bit AS is_descending_key,
    c.is_included_column::int::emulator.bit AS is_included_column, 0::emulator.tinyint AS column_store_order_ordinal
FROM emulator.index_columns c JOIN emulator.visible_objects o ON o.object_id = c.object_id
ORDER BY c.object_id, c.index_id, c.index_column_id;

CREATE VIEW emulator_sys.key_constraints AS
SELECT a.*, i.index_id AS unique_index_id, i.is_system_named::int::emulator.bit AS is_system_named,
    1::emulator.bit AS is_enforced
FROM emulator_sys.objects a JOIN emulator.indexes i ON i.constraint_object_id = a.object_id;

CREATE VIEW emulator_sys.check_constraints AS
SELECT a.*, k.is_disabled::int::emulator.bit AS is_disabled, 0::emulator.bit AS is_not_for_replication,
    k.is_not_trusted::int::emulator.bit AS is_not_trusted, k.parent_column_id, k.definition, 1::emulator.bit AS uses_database_collation,
    k.is_system_named::int::emulator.bit AS is_system_named
FROM emulator_sys.objects a JOIN emulator.check_constraints k ON k.object_id = a.object_id;

CREATE VIEW emulator_sys.default_constraints AS
SELECT a.*, k.parent_column_id, k.definition, k.is_system_named::int::emulator.bit AS is_system_named
FROM emulator_sys.objects a JOIN emulator.default_constraints k ON k.object_id = a.object_id;

CREATE VIEW emulator_sys.foreign_keys AS
SELECT a.*, f.referenced_object_id, f.key_index_id, f.is_disabled::int::emulator.bit AS is_disabled,
    0::emulator.bit AS is_not_for_replication, f.is_not_trusted::int::emulator.bit AS is_not_trusted,
    f.delete_action::emulator.tinyint AS delete_referential_action,
    (ARRAY['NO_ACTION', 'CASCADE', 'SET_NULL', 'SET_DEFAULT'])[f.delete_action + 1]::varchar(60) AS delete_referential_action_desc,
    f.update_action::emulator.tinyint AS update_referential_action,
    (ARRAY['NO_ACTION', 'CASCADE', 'SET_NULL', 'SET_DEFAULT'])[f.update_action + 1]::varchar(60) AS update_referential_action_desc,
    f.is_system_named::int::emulator.bit AS is_system_named
FROM emulator_sys.objects a JOIN emulator.foreign_keys f ON f.object_id = a.object_id;

CREATE VIEW emulator_sys.foreign_key_columns AS
SELECT o.database_id AS database, c.object_id AS constraint_object_id, c.ordinal AS constraint_column_id, f.parent_object_id,
    c.parent_column_id, f.referenced_object_id, c.referenced_column_id
FROM emulator.foreign_key_columns c JOIN emulator.foreign_keys f ON f.object_id = c.object_id
JOIN emulator.visible_objects o ON o.object_id = f.object_id;

CREATE VIEW emulator_sys.partitions AS
SELECT i.database, (i.object_id::bigint << 16) + i.index_id AS partition_id, i.object_id, i.index_id, 1 AS partition_number,
    (i.object_id::bigint << 16) + i.index_id AS hobt_id, emulator.count_rows(i.object_id) AS rows,
    0::smallint AS filestream_filegroup_id, 0::emulator.tinyint AS data_compression,
    'NONE'::varchar(60) AS data_compression_desc, 0::emulator.bit AS xml_compression, 'OFF'::varchar(3) AS xml_compression_desc
FROM emulator_sys.indexes i;

CREATE VIEW emulator_sys.allocation_units AS
SELECT i.database, ((i.object_id::bigint << 16) + i.index_id) * 4 + u.type AS allocation_unit_id, u.type::emulator.tinyint AS type,
    (CASE u.type WHEN 1 THEN 'IN_ROW_DATA' ELSE 'LOB_DATA' END)::varchar(60) AS type_desc,
    (i.object_id::bigint << 16) + i.index_id AS container_id, 1 AS data_space_id, u.pages AS total_pages, u.pages AS used_pages,
    (CASE WHEN u.type = 1 AND i.index_id IN (0, 1) THEN pg_relation_size(i.object_id::oid) / 8192 ELSE u.pages END) AS data_pages
FROM emulator_sys.indexes i
LEFT JOIN emulator.indexes k ON k.object_id = i.object_id AND k.index_id = i.index_id
CROSS JOIN LATERAL (
    SELECT n.type, emulator.used_pages(i.object_id, k.postgres_name, i.index_id IN (0, 1), n.type) AS pages
    FROM (VALUES (1), (2)) n (type)
    WHERE n.type = 1 OR (i.index_id IN (0, 1) AND (SELECT t.reltoastrelid <> 0 FROM pg_class t WHERE t.oid = i.object_id::oid))
) u;

CREATE VIEW emulator_sys.dm_db_partition_stats AS
SELECT p.database, p.partition_id, p.object_id, p.index_id, p.partition_number, a.data_pages AS in_row_data_page_count,
    a.row_pages AS in_row_used_page_count, a.row_pages AS in_row_reserved_page_count, a.lob_pages AS lob_used_page_count,
    a.lob_pages AS lob_reserved_page_count, 0::bigint AS row_overflow_used_page_count,
    0::bigint AS row_overflow_reserved_page_count, a.row_pages + a.lob_pages AS used_page_count,
    a.row_pages + a.lob_pages AS reserved_page_count, p.rows AS row_count
FROM emulator_sys.partitions p CROSS JOIN LATERAL (
    SELECT coalesce(sum(u.data_pages) FILTER (WHERE u.type = 1), 0)::bigint AS data_pages,
        coalesce(sum(u.used_pages) FILTER (WHERE u.type = 1), 0)::bigint AS row_pages,
        coalesce(sum(u.used_pages) FILTER (WHERE u.type = 2), 0)::bigint AS lob_pages
    FROM emulator_sys.allocation_units u WHERE u.database = p.database AND u.container_id = p.hobt_id
) a;

CREATE VIEW emulator_sys.dm_db_log_space_usage AS
SELECT d.database_id AS database, d.database_id, l.total_bytes AS total_log_size_in_bytes, l.used_bytes AS used_log_space_in_bytes,
    (l.used_bytes * 100.0 / l.total_bytes)::real AS used_log_space_in_percent, l.used_bytes AS log_space_in_bytes_since_last_backup
FROM emulator.databases d, emulator.log_space(d.database_id) l;

CREATE VIEW emulator_sys.data_spaces AS
WITH spaces AS (
    SELECT g.database_id, g.data_space_id, g.name, g.is_default FROM emulator.filegroups g
    UNION ALL SELECT d.database_id, 1, 'PRIMARY',
        NOT EXISTS (SELECT FROM emulator.filegroups g WHERE g.database_id = d.database_id AND g.is_default)
    FROM emulator.databases d)
SELECT s.database_id AS database, s.name::emulator.sysname AS name, s.data_space_id, 'FG'::emulator.char2 AS type,
    'ROWS_FILEGROUP'::varchar(60) AS type_desc, s.is_default::int::emulator.bit AS is_default, 0::emulator.bit AS is_system
FROM spaces s;

CREATE VIEW emulator_sys.filegroups AS
SELECT s.*, NULL::uuid AS filegroup_guid, NULL::int AS log_filegroup_id, 0::emulator.bit AS is_read_only,
    0::emulator.bit AS is_autogrow_all_files
FROM emulator_sys.data_spaces s;

CREATE VIEW emulator_sys.extended_properties AS
SELECT DISTINCT p.database_id AS database, p.class::emulator.tinyint AS class,
    (CASE p.class WHEN 0 THEN 'DATABASE' WHEN 1 THEN 'OBJECT_OR_COLUMN' WHEN 2 THEN 'PARAMETER' WHEN 3 THEN 'SCHEMA'
        WHEN 4 THEN 'DATABASE_PRINCIPAL' WHEN 6 THEN 'TYPE' WHEN 7 THEN 'INDEX' END)::varchar(60) AS class_desc, p.major_id,
    p.minor_id, p.name::emulator.sysname AS name, p.value::emulator.sql_variant AS value
FROM emulator.extended_properties p JOIN emulator.property_targets t ON t.database_id = p.database_id AND t.class = p.class
    AND t.major_id = p.major_id AND t.minor_id = p.minor_id;

-- Principals ----------------------------------------------------------------------------------------------------------

CREATE VIEW emulator_sys.database_principals AS
SELECT p.database_id AS database, p.name::emulator.sysname AS name, p.principal_id, p.type::emulator.char1 AS type,
    (CASE p.type WHEN 'S' THEN 'SQL_USER' ELSE 'DATABASE_ROLE' END)::varchar(60) AS type_desc,
    p.default_schema::emulator.sysname AS default_schema_name, p.create_date::emulator.datetime AS create_date,
    p.create_date::emulator.datetime AS modify_date, (CASE WHEN p.type = 'R' THEN 1 END) AS owning_principal_id,
    (CASE WHEN p.type = 'S' THEN int4send(p.principal_id) END) AS sid, p.is_fixed_role::int::emulator.bit AS is_fixed_role,
    (CASE WHEN p.login IS NULL THEN 0 ELSE 1 END) AS authentication_type,
    (CASE WHEN p.login IS NULL THEN 'NONE' ELSE 'INSTANCE' END)::varchar(60) AS authentication_type_desc,
    NULL::emulator.sysname AS default_language_name, NULL::int AS default_language_lcid,
    0::emulator.bit AS allow_encrypted_value_modifications
FROM emulator.principals p;

CREATE VIEW emulator_sys.database_role_members AS
SELECT m.database_id AS database, m.role_principal_id, m.member_principal_id FROM emulator.role_members m;

CREATE VIEW emulator_sys.database_permissions AS
SELECT p.database_id AS database, (CASE WHEN p.object_id IS NOT NULL THEN 1 WHEN p.schema_id IS NOT NULL THEN 3 ELSE 0 END)::emulator.tinyint AS class,
    (CASE WHEN p.object_id IS NOT NULL THEN 'OBJECT_OR_COLUMN' WHEN p.schema_id IS NOT NULL THEN 'SCHEMA' ELSE 'DATABASE' END)::varchar(60) AS class_desc,
    coalesce(p.object_id, p.schema_id, 0) AS major_id, p.column_id AS minor_id, p.principal_id AS grantee_principal_id,
    1 AS grantor_principal_id, rpad(coalesce(t.type, upper(left(p.permission, 4))), 4)::char(4) AS type,
    p.permission::varchar(128) AS permission_name, p.state::emulator.char1 AS state,
    (CASE p.state WHEN 'D' THEN 'DENY' WHEN 'W' THEN 'GRANT_WITH_GRANT_OPTION' ELSE 'GRANT' END)::varchar(60) AS state_desc
FROM (
    SELECT k.database_id, k.principal_id, k.permission, k.object_id, k.schema_id, k.column_id, k.state FROM emulator.permissions k
    WHERE k.object_id IS NULL OR EXISTS (SELECT FROM emulator.visible_objects o WHERE o.object_id = k.object_id)
    UNION ALL
    SELECT u.database_id, u.principal_id, 'CONNECT', NULL, NULL, 0, 'G' FROM emulator.principals u
    WHERE u.type = 'S' AND u.login IS NOT NULL AND NOT EXISTS (SELECT FROM emulator.permissions c WHERE c.database_id = u.database_id
        AND c.principal_id = u.principal_id AND c.permission = 'CONNECT')
) p
LEFT JOIN (VALUES ('SELECT', 'SL'), ('INSERT', 'IN'), ('UPDATE', 'UP'), ('DELETE', 'DL'), ('REFERENCES', 'RF'), ('EXECUTE', 'EX'),
    ('CONTROL', 'CL'), ('ALTER', 'AL'), ('VIEW DEFINITION', 'VW'), ('TAKE OWNERSHIP', 'TO'), ('CONNECT', 'CO'),
    ('VIEW DATABASE STATE', 'VWDS'), ('VIEW CHANGE TRACKING', 'VWCT'), ('VIEW DATABASE PERFORMANCE STATE', 'VDP'), ('CREATE TABLE', 'CRTB'),
    ('CREATE VIEW', 'CRVW'), ('CREATE PROCEDURE', 'CRPR'), ('CREATE SCHEMA', 'CRSM'), ('SHOWPLAN', 'SPLN'),
    ('ALTER ANY SCHEMA', 'ALSM')) AS t (permission, type) ON t.permission = p.permission;

CREATE VIEW emulator_sys.server_principals AS
SELECT l.name::emulator.sysname AS name, l.principal_id,
    (CASE WHEN l.principal_id = 1 THEN '\x01'::bytea ELSE int4send(l.principal_id) END) AS sid,
    'S'::emulator.char1 AS type, 'SQL_LOGIN'::varchar(60) AS type_desc, l.is_disabled::int AS is_disabled,
    l.create_date::emulator.datetime AS create_date, l.create_date::emulator.datetime AS modify_date,
    l.default_database::emulator.sysname AS default_database_name, 'us_english'::emulator.sysname AS default_language_name,
    NULL::int AS credential_id, NULL::int AS owning_principal_id, 0::emulator.bit AS is_fixed_role
FROM emulator.logins l
UNION ALL
SELECT r.name::emulator.sysname, r.id, NULL, 'R'::emulator.char1, 'SERVER_ROLE'::varchar(60), 0,
    emulator.now()::emulator.datetime, emulator.now()::emulator.datetime, NULL::emulator.sysname, NULL::emulator.sysname, NULL, 1,
    1::emulator.bit
FROM (VALUES ('public', 2), ('sysadmin', 3)) AS r (name, id);

CREATE VIEW emulator_sys.server_role_members AS
SELECT 3 AS role_principal_id, l.principal_id AS member_principal_id FROM emulator.logins l WHERE l.is_sysadmin;

CREATE VIEW emulator_sys.sql_logins AS
SELECT p.*, 1::emulator.bit AS is_policy_checked, 0::emulator.bit AS is_expiration_checked
FROM emulator_sys.server_principals p WHERE p.type = 'S';

-- The server ----------------------------------------------------------------------------------------------------------

CREATE VIEW emulator_sys.databases AS
SELECT d.name::emulator.sysname AS name, d.database_id, NULL::int AS source_database_id, '\x01'::bytea AS owner_sid,
    d.create_date::emulator.datetime AS create_date, (split_part(emulator.setting('product_version'), '.', 1)::int * 10)::emulator.tinyint AS compatibility_level,
    d.collation_name::emulator.sysname AS collation_name, 0::emulator.tinyint AS user_access,
    'MULTI_USER'::varchar(60) AS user_access_desc, 0::emulator.bit AS is_read_only, 0::emulator.bit AS is_auto_close_on,
    0::emulator.bit AS is_auto_shrink_on, 0::emulator.tinyint AS state, 'ONLINE'::varchar(60) AS state_desc,
    0::emulator.bit AS is_in_standby, 0::emulator.bit AS is_cleanly_shutdown,
    0::emulator.bit AS is_supplemental_logging_enabled, d.snapshot_isolation_state::emulator.tinyint AS snapshot_isolation_state,
    (CASE d.snapshot_isolation_state WHEN 1 THEN 'ON' ELSE 'OFF' END)::varchar(60) AS snapshot_isolation_state_desc,
    d.is_read_committed_snapshot_on::int::emulator.bit AS is_read_committed_snapshot_on,
    d.recovery_model::emulator.tinyint AS recovery_model,
    (ARRAY['FULL', 'BULK_LOGGED', 'SIMPLE'])[d.recovery_model]::varchar(60) AS recovery_model_desc,
    2::emulator.tinyint AS page_verify_option, 'CHECKSUM'::varchar(60) AS page_verify_option_desc,
    1::emulator.bit AS is_auto_create_stats_on, 0::emulator.bit AS is_auto_create_stats_incremental_on,
    1::emulator.bit AS is_auto_update_stats_on, 0::emulator.bit AS is_auto_update_stats_async_on,
    0::emulator.bit AS is_ansi_null_default_on, 0::emulator.bit AS is_ansi_nulls_on, 0::emulator.bit AS is_ansi_padding_on,
    0::emulator.bit AS is_ansi_warnings_on, 0::emulator.bit AS is_arithabort_on,
    0::emulator.bit AS is_concat_null_yields_null_on, 0::emulator.bit AS is_numeric_roundabort_on,
    0::emulator.bit AS is_quoted_identifier_on, 0::emulator.bit AS is_recursive_triggers_on,
    0::emulator.bit AS is_cursor_close_on_commit_on, 0::emulator.bit AS is_local_cursor_default,
    0::emulator.bit AS is_fulltext_enabled, 0::emulator.bit AS is_trustworthy_on, 0::emulator.bit AS is_db_chaining_on,
    0::emulator.bit AS is_parameterization_forced,
    (EXISTS (SELECT FROM emulator.master_keys k WHERE k.database_id = d.database_id))::int::emulator.bit AS is_master_key_encrypted_by_server,
    0::emulator.bit AS is_query_store_on, 0::emulator.bit AS is_published, 0::emulator.bit AS is_subscribed,
    0::emulator.bit AS is_merge_published, 0::emulator.bit AS is_distributor, 0::emulator.bit AS is_sync_with_backup,
    d.service_broker_guid, 0::emulator.bit AS is_broker_enabled,
    emulator.log_reuse_wait(d.database_id)::emulator.tinyint AS log_reuse_wait,
    (CASE emulator.log_reuse_wait(d.database_id) WHEN 6 THEN 'REPLICATION' ELSE 'NOTHING' END)::varchar(60) AS log_reuse_wait_desc,
    0::emulator.bit AS is_date_correlation_on, d.is_cdc_enabled::int::emulator.bit AS is_cdc_enabled,
    0::emulator.bit AS is_encrypted, 0::emulator.bit AS is_honor_broker_priority_on, NULL::uuid AS replica_id,
    CASE WHEN emulator.is_replicated(d.name) THEN md5('group of ' || d.service_broker_guid)::uuid END AS group_database_id, NULL::int AS resource_pool_id, NULL::smallint AS default_language_lcid,
    NULL::varchar(128) AS default_language_name, NULL::int AS default_fulltext_language_lcid,
    NULL::varchar(128) AS default_fulltext_language_name, NULL::emulator.bit AS is_nested_triggers_on,
    NULL::emulator.bit AS is_transform_noise_words_on, NULL::smallint AS two_digit_year_cutoff,
    0::emulator.tinyint AS containment, 'NONE'::varchar(60) AS containment_desc, 60 AS target_recovery_time_in_seconds,
    0 AS delayed_durability, 'DISABLED'::varchar(60) AS delayed_durability_desc,
    0::emulator.bit AS is_memory_optimized_elevate_to_snapshot_on, 0::emulator.bit AS is_federation_member,
    0::emulator.bit AS is_remote_data_archive_enabled, 0::emulator.bit AS is_mixed_page_allocation_on,
    1::emulator.bit AS is_temporal_history_retention_enabled, 0 AS catalog_collation_type,
    'DATABASE_DEFAULT'::varchar(60) AS catalog_collation_type_desc, d.name::varchar(128) AS physical_database_name,
    0::emulator.bit AS is_result_set_caching_on, 0::emulator.bit AS is_accelerated_database_recovery_on,
    0::emulator.bit AS is_tempdb_spill_to_remote_store, 0::emulator.bit AS is_stale_page_detection_on,
    0::emulator.bit AS is_memory_optimized_enabled, 0::emulator.bit AS is_data_retention_enabled,
    0::emulator.bit AS is_ledger_on, 0::emulator.bit AS is_change_feed_enabled,
    d.is_event_stream_enabled::int::emulator.bit AS is_event_stream_enabled
FROM emulator.databases d ORDER BY d.database_id;

CREATE VIEW emulator_sys.configurations AS
SELECT c.id AS configuration_id, c.name::varchar(35) AS name, coalesce(s.value::int, c.value) AS value,
    c.least AS minimum, c.most AS maximum, coalesce(s.value::int, c.value) AS value_in_use, c.description::varchar(255) AS description, c.dynamic::emulator.bit AS is_dynamic,
    c.advanced::emulator.bit AS is_advanced
FROM (VALUES
    (103, 'user connections', 0, 0, 32767, 'Number of user connections allowed', 0, 1),
    (115, 'nested triggers', 1, 0, 1, 'Allow triggers to be invoked within triggers', 1, 0),
    (117, 'remote access', 1, 0, 1, 'Allow remote access', 0, 0),
    (124, 'default language', 0, 0, 9999, 'default language', 1, 0),
    (518, 'show advanced options', 0, 0, 1, 'show advanced options', 1, 0),
    (1536, 'max text repl size (B)', -1, -1, 2147483647, 'Maximum size of a text field in replication.', 1, 0),
    (1538, 'cost threshold for parallelism', 5, 0, 32767, 'cost threshold for parallelism', 1, 1),
    (1539, 'max degree of parallelism', 0, 0, 32767, 'maximum degree of parallelism', 1, 1),
    (1544, 'max server memory (MB)', 2147483647, 128, 2147483647, 'Maximum size of server memory (MB)', 1, 1),
    (1562, 'clr enabled', 0, 0, 1, 'CLR user code execution enabled in the server', 1, 0),
    (1581, 'optimize for ad hoc workloads', 0, 0, 1, 'optimize for ad hoc workloads', 1, 1),
    (16384, 'Agent XPs', 1, 0, 1, 'Enable or disable Agent XPs', 1, 1),
    (16393, 'contained database authentication', 0, 0, 1, 'Enables contained databases and contained authentication', 1, 0)
) AS c (id, name, value, least, most, description, dynamic, advanced)
LEFT JOIN emulator.settings s ON s.name = c.name;

CREATE VIEW emulator_sys.dm_server_services AS
SELECT s.name::varchar(256) AS servicename, 2 AS startup_type, 'Automatic'::varchar(256) AS startup_type_desc,
    CASE WHEN s.runs THEN 4 ELSE 1 END AS status,
    (CASE WHEN s.runs THEN 'Running' ELSE 'Stopped' END)::varchar(256) AS status_desc, pg_backend_pid() AS process_id,
    ROW(pg_postmaster_start_time() AT TIME ZONE 'UTC', 0)::tsql.datetimeoffset AS last_startup_time,
    'sqlserver_emulator'::varchar(256) AS service_account, ''::varchar(256) AS filename, 'N'::varchar(1) AS is_clustered,
    NULL::varchar(256) AS cluster_nodename, 'N'::varchar(1) AS instant_file_initialization_enabled
-- The agent holds this lock as long as it runs.
FROM (VALUES ('SQL Server (MSSQLSERVER)', true), ('SQL Server Agent (MSSQLSERVER)', EXISTS (SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid = 0 AND objid = 1128547137 AND granted))) AS s (name, runs);

CREATE VIEW emulator_sys.dm_exec_sessions AS
SELECT s.session_id, s.login_time::emulator.datetime AS login_time, 'localhost'::varchar(128) AS host_name,
    s.application AS program_name, s.backend_pid AS host_process_id, 7 AS client_version,
    'ODBC'::varchar(32) AS client_interface_name, '\x01'::bytea AS security_id, s.login AS login_name,
    NULL::varchar(128) AS nt_domain, NULL::varchar(128) AS nt_user_name,
    (CASE WHEN a.state = 'active' THEN 'running' ELSE 'sleeping' END)::varchar(30) AS status, '\x'::bytea AS context_info,
    0 AS cpu_time, 4 AS memory_usage, 0 AS total_scheduled_time, 0 AS total_elapsed_time, 4 AS endpoint_id,
    a.query_start::timestamp(3)::emulator.datetime AS last_request_start_time,
    a.state_change::timestamp(3)::emulator.datetime AS last_request_end_time, 0::bigint AS reads, 0::bigint AS writes,
    0::bigint AS logical_reads, 1::emulator.bit AS is_user_process, 2147483647 AS text_size,
    'us_english'::varchar(128) AS language, 'mdy'::varchar(3) AS date_format, 7::smallint AS date_first,
    1::emulator.bit AS quoted_identifier, 1::emulator.bit AS arithabort, 1::emulator.bit AS ansi_null_dflt_on,
    0::emulator.bit AS ansi_defaults, 1::emulator.bit AS ansi_warnings, 1::emulator.bit AS ansi_padding,
    1::emulator.bit AS ansi_nulls, 1::emulator.bit AS concat_null_yields_null,
    (CASE WHEN s.backend_pid = pg_backend_pid()
        THEN CASE current_setting('emulator.isolation', true) WHEN 'READ UNCOMMITTED' THEN 1 WHEN 'REPEATABLE READ' THEN 3
             WHEN 'SERIALIZABLE' THEN 4 WHEN 'SNAPSHOT' THEN 5 ELSE 2 END ELSE 2 END)::smallint AS transaction_isolation_level,
    -1 AS lock_timeout, 0 AS deadlock_priority, 0::bigint AS row_count, 0 AS prev_error,
    '\x01'::bytea AS original_security_id, s.login AS original_login_name, NULL::emulator.datetime AS last_successful_logon,
    NULL::emulator.datetime AS last_unsuccessful_logon, NULL::bigint AS unsuccessful_logons, 2 AS group_id,
    (SELECT d.database_id FROM emulator.databases d WHERE d.name = CASE WHEN s.backend_pid = pg_backend_pid()
        THEN current_setting('emulator.database') ELSE s.database_name END)::smallint AS database_id,
    1 AS authenticating_database_id, (a.xact_start IS NOT NULL)::int AS open_transaction_count, 0::bigint AS page_server_reads,
    NULL::uuid AS contained_availability_group_id
FROM emulator.sessions s JOIN pg_stat_activity a ON a.pid = s.backend_pid;

CREATE VIEW emulator_sys.dm_exec_connections AS
SELECT s.session_id::int AS session_id, s.session_id::int AS most_recent_session_id,
    s.login_time::emulator.datetime AS connect_time, 'TCP'::varchar(40) AS net_transport, 'TSQL'::varchar(40) AS protocol_type,
    1946157060 AS protocol_version, 4 AS endpoint_id, upper(s.encrypted::text)::varchar(40) AS encrypt_option,
    'SQL'::varchar(40) AS auth_scheme, 0::smallint AS node_affinity, '127.0.0.1'::varchar(48) AS client_net_address,
    '127.0.0.1'::varchar(48) AS local_net_address
FROM emulator.sessions s JOIN pg_stat_activity a ON a.pid = s.backend_pid;

CREATE VIEW emulator_sys.dm_os_sys_info AS
SELECT pg_postmaster_start_time()::timestamp(3)::emulator.datetime AS sqlserver_start_time, 2 AS cpu_count,
    8388608::bigint AS physical_memory_kb;

-- INFORMATION_SCHEMA --------------------------------------------------------------------------------------------------

CREATE VIEW emulator_information_schema."TABLES" AS
SELECT o.database_id AS database, d.name::varchar(128) AS "TABLE_CATALOG", s.name::varchar(128) AS "TABLE_SCHEMA",
    o.name::emulator.sysname AS "TABLE_NAME",
    (CASE o.type WHEN 'U' THEN 'BASE TABLE' ELSE 'VIEW' END)::varchar(10) AS "TABLE_TYPE"
FROM emulator.visible_objects o JOIN emulator.databases d ON d.database_id = o.database_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
WHERE o.type IN ('U', 'V') AND NOT o.is_system;

CREATE VIEW emulator_information_schema."COLUMNS" AS
SELECT t.database, t."TABLE_CATALOG", t."TABLE_SCHEMA", t."TABLE_NAME", c.name::emulator.sysname AS "COLUMN_NAME",
    c.column_id AS "ORDINAL_POSITION", k.definition::varchar(4000) AS "COLUMN_DEFAULT",
    (CASE WHEN c.is_nullable THEN 'YES' ELSE 'NO' END)::varchar(3) AS "IS_NULLABLE",
    (CASE c.type_name WHEN 'rowversion' THEN 'timestamp' WHEN 'sysname' THEN 'nvarchar' ELSE c.type_name END)::varchar(128) AS "DATA_TYPE",
    (CASE WHEN c.type_name IN ('text', 'image') THEN 2147483647 WHEN c.type_name = 'ntext' THEN 1073741823
        WHEN c.type_name = 'xml' THEN -1 WHEN c.length <> 0 THEN c.length END)::int AS "CHARACTER_MAXIMUM_LENGTH",
    (CASE WHEN c.type_name IN ('text', 'image') THEN 2147483647 WHEN c.type_name = 'ntext' THEN 2147483646
        WHEN c.type_name = 'xml' THEN -1
        WHEN c.length <> 0 THEN emulator.type_max_length(c.type_name, c.length, c.precision, c.scale) END)::int AS "CHARACTER_OCTET_LENGTH",
    (CASE WHEN emulator.number_radix(c.type_name) IS NOT NULL
        THEN emulator.type_precision(c.type_name, c.precision, c.scale) END)::emulator.tinyint AS "NUMERIC_PRECISION",
    emulator.number_radix(c.type_name) AS "NUMERIC_PRECISION_RADIX",
    (CASE WHEN emulator.number_radix(c.type_name) = 10
        THEN emulator.type_scale(c.type_name, c.scale) END)::int AS "NUMERIC_SCALE",
    emulator.fraction_digits(c.type_name, c.scale) AS "DATETIME_PRECISION",
    NULL::emulator.sysname AS "CHARACTER_SET_CATALOG", NULL::emulator.sysname AS "CHARACTER_SET_SCHEMA",
    (CASE WHEN c.type_name IN ('char', 'varchar', 'text') THEN 'iso_1'
        WHEN emulator.is_character_type(c.type_name) THEN 'UNICODE' END)::emulator.sysname AS "CHARACTER_SET_NAME",
    NULL::emulator.sysname AS "COLLATION_CATALOG", NULL::emulator.sysname AS "COLLATION_SCHEMA",
    (CASE WHEN emulator.is_character_type(c.type_name) THEN coalesce(c.collation_name, cd.collation_name) END)::emulator.sysname AS "COLLATION_NAME",
    (CASE WHEN u.name IS NOT NULL THEN t."TABLE_CATALOG" END)::emulator.sysname AS "DOMAIN_CATALOG",
    us.name::emulator.sysname AS "DOMAIN_SCHEMA", u.name::emulator.sysname AS "DOMAIN_NAME"
FROM emulator.columns c JOIN emulator.visible_objects o ON o.object_id = c.object_id
JOIN emulator.databases cd ON cd.database_id = o.database_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator_information_schema."TABLES" t
    ON t.database = o.database_id AND t."TABLE_SCHEMA" = s.name AND t."TABLE_NAME" = o.name
LEFT JOIN emulator.default_constraints k ON k.object_id = c.default_object_id
LEFT JOIN emulator.user_types u ON u.database_id = o.database_id AND u.user_type_id = c.user_type_id
LEFT JOIN emulator.schemas us ON us.database_id = u.database_id AND us.schema_id = u.schema_id
ORDER BY c.object_id, c.column_id;

CREATE VIEW emulator_information_schema."TABLE_CONSTRAINTS" AS
SELECT k.database_id AS database, d.name::varchar(128) AS "CONSTRAINT_CATALOG", s.name::varchar(128) AS "CONSTRAINT_SCHEMA",
    k.name::emulator.sysname AS "CONSTRAINT_NAME", d.name::varchar(128) AS "TABLE_CATALOG", s.name::varchar(128) AS "TABLE_SCHEMA",
    t.name::emulator.sysname AS "TABLE_NAME",
    (CASE k.type WHEN 'PK' THEN 'PRIMARY KEY' WHEN 'UQ' THEN 'UNIQUE' WHEN 'F' THEN 'FOREIGN KEY' ELSE 'CHECK' END)::varchar(11)
        AS "CONSTRAINT_TYPE",
    'NO'::varchar(2) AS "IS_DEFERRABLE", 'NO'::varchar(2) AS "INITIALLY_DEFERRED"
FROM emulator.visible_objects k JOIN emulator.visible_objects t ON t.object_id = k.parent_object_id
JOIN emulator.databases d ON d.database_id = k.database_id
JOIN emulator.schemas s ON s.database_id = k.database_id AND s.schema_id = k.schema_id
WHERE k.type IN ('PK', 'UQ', 'F', 'C');

CREATE VIEW emulator_information_schema."KEY_COLUMN_USAGE" AS
SELECT k.database_id AS database, d.name::varchar(128) AS "CONSTRAINT_CATALOG", s.name::varchar(128) AS "CONSTRAINT_SCHEMA",
    k.name::varchar(128) AS "CONSTRAINT_NAME", d.name::varchar(128) AS "TABLE_CATALOG", s.name::varchar(128) AS "TABLE_SCHEMA",
    t.name::varchar(128) AS "TABLE_NAME", c.name::varchar(128) AS "COLUMN_NAME", u.ordinal AS "ORDINAL_POSITION"
FROM (
    SELECT i.constraint_object_id AS object_id, ic.column_id, ic.key_ordinal::int AS ordinal FROM emulator.indexes i
    JOIN emulator.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
    WHERE i.constraint_object_id IS NOT NULL AND ic.key_ordinal > 0
    UNION ALL
    SELECT f.object_id, f.parent_column_id, f.ordinal FROM emulator.foreign_key_columns f
) u
JOIN emulator.visible_objects k ON k.object_id = u.object_id
JOIN emulator.visible_objects t ON t.object_id = k.parent_object_id
JOIN emulator.columns c ON c.object_id = t.object_id AND c.column_id = u.column_id
JOIN emulator.databases d ON d.database_id = k.database_id
JOIN emulator.schemas s ON s.database_id = k.database_id AND s.schema_id = k.schema_id
ORDER BY k.object_id, u.ordinal;

CREATE VIEW emulator_information_schema."CONSTRAINT_COLUMN_USAGE" AS
SELECT u.database, u."TABLE_CATALOG", u."TABLE_SCHEMA", u."TABLE_NAME", u."COLUMN_NAME", u."CONSTRAINT_CATALOG",
    u."CONSTRAINT_SCHEMA", u."CONSTRAINT_NAME"
FROM emulator_information_schema."KEY_COLUMN_USAGE" u
UNION ALL
SELECT k.database_id, d.name, s.name, t.name, c.name, d.name, s.name, k.name
FROM emulator.check_constraints x JOIN emulator.visible_objects k ON k.object_id = x.object_id
JOIN emulator.visible_objects t ON t.object_id = x.parent_object_id
-- All columns that the condition names, also of a CHECK that was declared for no column.
JOIN pg_constraint p ON p.conrelid = t.object_id::oid AND p.conname = k.postgres_name
JOIN emulator.columns c ON c.object_id = t.object_id AND c.attnum = ANY (p.conkey)
JOIN emulator.databases d ON d.database_id = k.database_id
JOIN emulator.schemas s ON s.database_id = k.database_id AND s.schema_id = k.schema_id;

CREATE VIEW emulator_information_schema."CONSTRAINT_TABLE_USAGE" AS
SELECT c.database, c."TABLE_CATALOG", c."TABLE_SCHEMA", c."TABLE_NAME", c."CONSTRAINT_CATALOG", c."CONSTRAINT_SCHEMA",
    c."CONSTRAINT_NAME"
FROM emulator_information_schema."TABLE_CONSTRAINTS" c;

CREATE VIEW emulator_information_schema."REFERENTIAL_CONSTRAINTS" AS
SELECT k.database_id AS database, d.name::varchar(128) AS "CONSTRAINT_CATALOG", s.name::varchar(128) AS "CONSTRAINT_SCHEMA",
    k.name::emulator.sysname AS "CONSTRAINT_NAME", d.name::varchar(128) AS "UNIQUE_CONSTRAINT_CATALOG",
    rs.name::varchar(128) AS "UNIQUE_CONSTRAINT_SCHEMA", i.name::emulator.sysname AS "UNIQUE_CONSTRAINT_NAME",
    'SIMPLE'::varchar(7) AS "MATCH_OPTION",
    (ARRAY['NO ACTION', 'CASCADE', 'SET NULL', 'SET DEFAULT'])[f.update_action + 1]::varchar(11) AS "UPDATE_RULE",
    (ARRAY['NO ACTION', 'CASCADE', 'SET NULL', 'SET DEFAULT'])[f.delete_action + 1]::varchar(11) AS "DELETE_RULE"
FROM emulator.foreign_keys f JOIN emulator.visible_objects k ON k.object_id = f.object_id
JOIN emulator.visible_objects r ON r.object_id = f.referenced_object_id
JOIN emulator.indexes i ON i.object_id = f.referenced_object_id AND i.index_id = f.key_index_id
JOIN emulator.databases d ON d.database_id = k.database_id
JOIN emulator.schemas s ON s.database_id = k.database_id AND s.schema_id = k.schema_id
JOIN emulator.schemas rs ON rs.database_id = r.database_id AND rs.schema_id = r.schema_id;

CREATE VIEW emulator_information_schema."CHECK_CONSTRAINTS" AS
SELECT k.database_id AS database, d.name::varchar(128) AS "CONSTRAINT_CATALOG", s.name::varchar(128) AS "CONSTRAINT_SCHEMA",
    k.name::emulator.sysname AS "CONSTRAINT_NAME", c.definition::varchar(4000) AS "CHECK_CLAUSE"
FROM emulator.check_constraints c JOIN emulator.visible_objects k ON k.object_id = c.object_id
JOIN emulator.databases d ON d.database_id = k.database_id
JOIN emulator.schemas s ON s.database_id = k.database_id AND s.schema_id = k.schema_id;

CREATE VIEW emulator_information_schema."SCHEMATA" AS
SELECT s.database, d.name::varchar(128) AS "CATALOG_NAME", s.name::varchar(128) AS "SCHEMA_NAME",
    coalesce((SELECT p.name FROM emulator.principals p WHERE p.database_id = s.database AND p.principal_id = s.principal_id),
        'dbo')::varchar(128) AS "SCHEMA_OWNER",
    NULL::varchar(6) AS "DEFAULT_CHARACTER_SET_CATALOG", NULL::varchar(3) AS "DEFAULT_CHARACTER_SET_SCHEMA",
    'iso_1'::emulator.sysname AS "DEFAULT_CHARACTER_SET_NAME"
FROM emulator_sys.schemas s JOIN emulator.databases d ON d.database_id = s.database;

CREATE VIEW emulator_information_schema."VIEWS" AS
SELECT t.database, t."TABLE_CATALOG", t."TABLE_SCHEMA", t."TABLE_NAME", o.definition::varchar(4000) AS "VIEW_DEFINITION",
    'NONE'::varchar(7) AS "CHECK_OPTION", 'NO'::varchar(2) AS "IS_UPDATABLE"
FROM emulator_information_schema."TABLES" t
JOIN emulator.schemas s ON s.database_id = t.database AND s.name = t."TABLE_SCHEMA"
JOIN emulator.visible_objects o ON o.database_id = t.database AND o.schema_id = s.schema_id AND o.name = t."TABLE_NAME"
WHERE t."TABLE_TYPE" = 'VIEW';

CREATE VIEW emulator_information_schema."ROUTINES" AS
SELECT o.database_id AS database, d.name::varchar(128) AS "SPECIFIC_CATALOG", s.name::varchar(128) AS "SPECIFIC_SCHEMA",
    o.name::emulator.sysname AS "SPECIFIC_NAME", d.name::varchar(128) AS "ROUTINE_CATALOG",
    s.name::varchar(128) AS "ROUTINE_SCHEMA", o.name::emulator.sysname AS "ROUTINE_NAME",
    (CASE o.type WHEN 'P' THEN 'PROCEDURE' ELSE 'FUNCTION' END)::varchar(20) AS "ROUTINE_TYPE",
    (CASE o.type WHEN 'IF' THEN 'TABLE' END)::varchar(128) AS "DATA_TYPE", 'SQL'::varchar(30) AS "ROUTINE_BODY",
    o.definition::varchar(4000) AS "ROUTINE_DEFINITION", 'NO'::varchar(10) AS "IS_DETERMINISTIC",
    (CASE o.type WHEN 'P' THEN 'MODIFIES' ELSE 'READS' END)::varchar(30) AS "SQL_DATA_ACCESS",
    o.create_date::emulator.datetime AS "CREATED", o.modify_date::emulator.datetime AS "LAST_ALTERED"
FROM emulator.visible_objects o JOIN emulator.databases d ON d.database_id = o.database_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
WHERE o.type IN ('P', 'IF', 'FN', 'TF') AND NOT o.is_system;

-- Each database's own views -------------------------------------------------------------------------------------------

-- Fill emulator.columns of relations from PostgreSQL's catalog (used where no T-SQL declaration exists). Each type is
-- looked up once: many columns have few types.
CREATE OR REPLACE FUNCTION emulator.register_columns(relations oid[]) RETURNS void LANGUAGE sql AS $$
    WITH attributes AS MATERIALIZED (
        SELECT * FROM pg_attribute a WHERE a.attrelid = ANY (relations) AND a.attnum > 0 AND NOT a.attisdropped),
    types AS MATERIALIZED (
        SELECT d.atttypid, d.atttypmod, t.typname, emulator.tsql_type_name(d.atttypid) AS type_name,
               emulator.tsql_length(d.atttypid, d.atttypmod) AS length
        FROM (SELECT DISTINCT atttypid, atttypmod FROM attributes) d JOIN pg_type t ON t.oid = d.atttypid)
    INSERT INTO emulator.columns (object_id, column_id, name, postgres_name, attnum, type_name, length, precision, scale,
                                  is_nullable)
    SELECT a.attrelid::int, a.attnum, a.attname, a.attname, a.attnum, t.type_name, t.length,
           CASE WHEN t.typname = 'numeric' THEN CASE WHEN a.atttypmod > 4 THEN ((a.atttypmod - 4) >> 16) & 65535 ELSE 38 END
                WHEN t.typname = 'float8' THEN 53 ELSE 0 END,
           CASE WHEN t.typname = 'numeric' THEN CASE WHEN a.atttypmod > 4 THEN (a.atttypmod - 4) & 2047 ELSE 0 END
                WHEN t.typname IN ('time', 'timestamp') THEN CASE WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE 6 END
                WHEN t.typname = 'datetimeoffset' THEN 7 ELSE 0 END,
           NOT a.attnotnull
    FROM attributes a JOIN types t ON t.atttypid = a.atttypid AND t.atttypmod = a.atttypmod
    ON CONFLICT DO NOTHING
$$;

-- A table-valued function of sys, whose arguments are names: `selected` is a SELECT from a function of the database and them.
CREATE OR REPLACE FUNCTION emulator.install_rows_function(wanted int, called text, parameters text[], selected text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH added AS (
        INSERT INTO emulator.objects (database_id, schema_id, name, type, is_ms_shipped, is_system)
        SELECT wanted, s.schema_id, called, 'IF', true, true FROM emulator.schemas s
        WHERE s.database_id = wanted AND s.name = 'sys' ON CONFLICT DO NOTHING RETURNING object_id)
    INSERT INTO emulator.inline_functions (object_id, parameters, body)
    SELECT object_id,
        (SELECT jsonb_agg(jsonb_build_object('name', '@' || p, 'type', 'sysname', 'length', 128) ORDER BY n)
         FROM unnest(install_rows_function.parameters) WITH ORDINALITY AS u (p, n)), ''
    FROM added;
    UPDATE emulator.inline_functions f SET body = format('%s(%s, %s)', selected, wanted,
        (SELECT string_agg(format('$%s::text', n), ', ') FROM generate_series(1, cardinality(install_rows_function.parameters)) AS n))
    FROM emulator.objects o WHERE o.object_id = f.object_id AND o.database_id = wanted AND o.name = called;
END $$;

CREATE OR REPLACE FUNCTION emulator.install_system_views(wanted int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    home record;
    base record;
    made oid[];
    is_spare boolean;
    is_2025 boolean := emulator.setting('release_year')::int >= 2025;
BEGIN
    FOR home IN SELECT s.schema_id, s.name, s.postgres_name FROM emulator.schemas s
                WHERE s.database_id = wanted AND s.name IN ('sys', 'INFORMATION_SCHEMA') LOOP
        -- The views of a dropped database that had the same number may be there already.
        SELECT coalesce(array_agg(c.oid), '{}') INTO made FROM pg_class c JOIN pg_class b USING (relname, relkind)
        WHERE c.relnamespace = (SELECT to_regnamespace(format('%I', home.postgres_name))) AND c.relkind = 'v'
            AND b.relnamespace = (SELECT to_regnamespace(
                CASE home.name WHEN 'sys' THEN 'emulator_sys' ELSE 'emulator_information_schema' END));
        is_spare := made <> '{}';
        FOR base IN SELECT c.oid, c.relname, n.nspname,
                        (SELECT string_agg(format('b.%I', a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
                         WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attname <> 'database' AND (is_2025 OR a.attname <> 'is_event_stream_enabled')) AS columns,
                        EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'database') AS per_database
                    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = CASE home.name WHEN 'sys' THEN 'emulator_sys' ELSE 'emulator_information_schema' END
                      AND c.relkind = 'v' AND NOT is_spare LOOP
            EXECUTE format('CREATE VIEW %I.%I AS SELECT %s FROM %I.%I b%s', home.postgres_name, base.relname, base.columns,
                base.nspname, base.relname, CASE WHEN base.per_database THEN format(' WHERE b.database = %s', wanted) ELSE '' END);
            made := made || format('%I.%I', home.postgres_name, base.relname)::regclass::oid;
        END LOOP;
        IF is_spare THEN
            UPDATE emulator.objects SET database_id = wanted, create_date = emulator.now(), modify_date = emulator.now()
            WHERE object_id = ANY (made::int[]);
            CONTINUE;
        END IF;
        DELETE FROM emulator.objects o USING pg_class c
        WHERE c.oid = ANY (made) AND o.database_id = wanted AND o.schema_id = home.schema_id AND o.name = c.relname;
        INSERT INTO emulator.objects (object_id, database_id, schema_id, name, type, postgres_name, is_ms_shipped, is_system)
        SELECT c.oid::int, wanted, home.schema_id, c.relname, 'V', c.relname, true, true FROM pg_class c WHERE c.oid = ANY (made);
        PERFORM emulator.register_columns(made);
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO PUBLIC', home.postgres_name);
    END LOOP;
    PERFORM emulator.install_rows_function(wanted, 'fn_listextendedproperty',
        ARRAY['name', 'level0type', 'level0name', 'level1type', 'level1name', 'level2type', 'level2name'],
        'SELECT objtype, objname, name, value FROM emulator.list_properties');
    PERFORM emulator.install_rows_function(wanted, 'fn_my_permissions', ARRAY['securable', 'securable_class'],
        'SELECT entity_name, subentity_name, permission_name FROM emulator.my_permissions');
END $$;
