-- More of sys.* and INFORMATION_SCHEMA.*: what tools ask for to draw a database, and the views of before SQL Server 2005.
-- Runs after sys_views.sql, which makes the schemas.

-- Parameters and dependencies -----------------------------------------------------------------------------------------

CREATE VIEW emulator_sys.all_parameters AS
WITH listed AS (
    SELECT l.object_id, p.n::int AS parameter_id, p.parameter, false AS is_result
    FROM emulator.parameter_lists l, jsonb_array_elements(l.parameters) WITH ORDINALITY AS p (parameter, n)
    UNION ALL SELECT l.object_id, 0, l.returns || '{"name": ""}', true FROM emulator.parameter_lists l WHERE l.returns IS NOT NULL),
typed AS (
    SELECT l.*, l.parameter ->> 'type' AS type_name, (l.parameter ->> 'length')::int AS length,
        coalesce((l.parameter ->> 'precision')::int, 0) AS digits, coalesce((l.parameter ->> 'scale')::int, 0) AS decimals FROM listed l)
SELECT o.database_id AS database, p.object_id, (p.parameter ->> 'name')::emulator.sysname AS name, p.parameter_id,
    t.system_type_id::emulator.tinyint AS system_type_id, t.user_type_id,
    emulator.type_max_length(p.type_name, p.length, p.digits, p.decimals, t.max_length::smallint) AS max_length,
    emulator.type_precision(p.type_name, p.digits, p.decimals, t.precision::smallint)::emulator.tinyint AS precision,
    emulator.type_scale(p.type_name, p.decimals, t.scale::smallint)::emulator.tinyint AS scale,
    (p.is_result OR coalesce((p.parameter ->> 'output')::boolean, false))::int::emulator.bit AS is_output,
    0::emulator.bit AS is_cursor_ref, 0::emulator.bit AS has_default_value, 0::emulator.bit AS is_xml_document,
    NULL::emulator.sql_variant AS default_value, 0 AS xml_collection_id, 0::emulator.bit AS is_readonly,
    1::emulator.bit AS is_nullable, NULL::int AS encryption_type, NULL::varchar(64) AS encryption_type_desc,
    NULL::emulator.sysname AS encryption_algorithm_name, NULL::int AS column_encryption_key_id,
    NULL::emulator.sysname AS column_encryption_key_database_name
FROM typed p JOIN emulator.visible_objects o ON o.object_id = p.object_id
LEFT JOIN emulator_sys.system_types t ON t.tsql_name = p.type_name;

CREATE VIEW emulator_sys.parameters AS
SELECT p.* FROM emulator_sys.all_parameters p JOIN emulator.visible_objects o ON o.object_id = p.object_id WHERE NOT o.is_system;

CREATE VIEW emulator_information_schema."PARAMETERS" AS
SELECT p.database, d.name::varchar(128) AS "SPECIFIC_CATALOG", s.name::varchar(128) AS "SPECIFIC_SCHEMA",
    o.name::emulator.sysname AS "SPECIFIC_NAME", p.parameter_id AS "ORDINAL_POSITION",
    (CASE WHEN p.parameter_id = 0 THEN 'OUT' WHEN p.is_output = 1 THEN 'INOUT' ELSE 'IN' END)::varchar(10) AS "PARAMETER_MODE",
    (CASE WHEN p.parameter_id = 0 THEN 'YES' ELSE 'NO' END)::varchar(10) AS "IS_RESULT", 'NO'::varchar(10) AS "AS_LOCATOR",
    p.name::varchar(128) AS "PARAMETER_NAME", t.name::varchar(128) AS "DATA_TYPE",
    (CASE WHEN t.tsql_name IN ('nvarchar', 'nchar') AND p.max_length > 0 THEN p.max_length / 2
        WHEN t.tsql_name IN ('varchar', 'char', 'varbinary', 'binary', 'nvarchar', 'nchar') THEN p.max_length END)::int AS "CHARACTER_MAXIMUM_LENGTH",
    (CASE WHEN t.tsql_name IN ('varchar', 'char', 'varbinary', 'binary', 'nvarchar', 'nchar') THEN p.max_length END)::int AS "CHARACTER_OCTET_LENGTH",
    (CASE WHEN t.tsql_name IN ('decimal', 'numeric', 'int', 'bigint', 'smallint', 'tinyint', 'float', 'real', 'money', 'smallmoney')
        THEN p.precision END)::emulator.tinyint AS "NUMERIC_PRECISION",
    (CASE WHEN t.tsql_name IN ('decimal', 'numeric', 'int', 'bigint', 'smallint', 'tinyint', 'money', 'smallmoney') THEN p.scale END)::int AS "NUMERIC_SCALE",
    (CASE WHEN t.tsql_name IN ('date', 'time', 'datetime', 'datetime2', 'smalldatetime', 'datetimeoffset') THEN p.scale END)::smallint AS "DATETIME_PRECISION"
FROM emulator_sys.parameters p JOIN emulator.visible_objects o ON o.object_id = p.object_id
JOIN emulator.databases d ON d.database_id = o.database_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
LEFT JOIN emulator_sys.system_types t ON t.user_type_id = p.user_type_id;

-- PostgreSQL knows what a view reads; what procedures, functions and triggers name is in their text only.
CREATE VIEW emulator_sys.sql_expression_dependencies AS
SELECT DISTINCT v.database_id AS database, v.object_id AS referencing_id, 0 AS referencing_minor_id,
    1::emulator.tinyint AS referencing_class, 'OBJECT_OR_COLUMN'::varchar(60) AS referencing_class_desc,
    0::emulator.bit AS is_schema_bound_reference, 1::emulator.tinyint AS referenced_class,
    'OBJECT_OR_COLUMN'::varchar(60) AS referenced_class_desc, NULL::emulator.sysname AS referenced_server_name,
    (CASE WHEN t.database_id <> v.database_id THEN d.name END)::emulator.sysname AS referenced_database_name,
    s.name::emulator.sysname AS referenced_schema_name, t.name::emulator.sysname AS referenced_entity_name,
    (CASE WHEN t.database_id = v.database_id THEN t.object_id END) AS referenced_id, 0 AS referenced_minor_id,
    0::emulator.bit AS is_caller_dependent, 0::emulator.bit AS is_ambiguous
FROM emulator.visible_objects v JOIN pg_rewrite r ON r.ev_class = v.object_id::bigint::oid
JOIN pg_depend p ON p.objid = r.oid AND p.classid = 'pg_rewrite'::regclass AND p.refclassid = 'pg_class'::regclass
JOIN emulator.visible_objects t ON t.object_id = p.refobjid::bigint::int AND t.object_id <> v.object_id AND NOT t.is_system
JOIN emulator.databases d ON d.database_id = t.database_id
JOIN emulator.schemas s ON s.database_id = t.database_id AND s.schema_id = t.schema_id
WHERE v.type = 'V' AND NOT v.is_system;

CREATE VIEW emulator_information_schema."VIEW_TABLE_USAGE" AS
SELECT e.database, d.name::varchar(128) AS "VIEW_CATALOG", vs.name::varchar(128) AS "VIEW_SCHEMA", v.name::emulator.sysname AS "VIEW_NAME",
    coalesce(e.referenced_database_name, d.name)::varchar(128) AS "TABLE_CATALOG", e.referenced_schema_name::varchar(128) AS "TABLE_SCHEMA",
    e.referenced_entity_name AS "TABLE_NAME"
FROM emulator_sys.sql_expression_dependencies e JOIN emulator.visible_objects v ON v.object_id = e.referencing_id
JOIN emulator.schemas vs ON vs.database_id = v.database_id AND vs.schema_id = v.schema_id
JOIN emulator.databases d ON d.database_id = e.database;

CREATE VIEW emulator_information_schema."SEQUENCES" AS
SELECT q.database, d.name::varchar(128) AS "SEQUENCE_CATALOG", s.name::varchar(128) AS "SEQUENCE_SCHEMA", q.name AS "SEQUENCE_NAME",
    t.name::varchar(128) AS "DATA_TYPE", q.precision AS "NUMERIC_PRECISION", 10::smallint AS "NUMERIC_PRECISION_RADIX", q.scale::int AS "NUMERIC_SCALE",
    q.start_value AS "START_VALUE", q.minimum_value AS "MINIMUM_VALUE", q.maximum_value AS "MAXIMUM_VALUE", q.increment AS "INCREMENT",
    q.is_cycling AS "CYCLE_OPTION", NULL::varchar(128) AS "DECLARED_DATA_TYPE", NULL::int AS "DECLARED_NUMERIC_PRECISION",
    NULL::int AS "DECLARED_NUMERIC_SCALE"
FROM emulator_sys.sequences q JOIN emulator.databases d ON d.database_id = q.database
JOIN emulator.schemas s ON s.database_id = q.database AND s.schema_id = q.schema_id
JOIN emulator_sys.system_types t ON t.user_type_id = q.user_type_id;

-- Types, statistics, files --------------------------------------------------------------------------------------------

CREATE VIEW emulator_sys.table_types AS
SELECT t.*, t.user_type_id AS type_table_object_id, 0::emulator.bit AS is_memory_optimized
FROM emulator_sys.types t JOIN emulator.user_types u ON u.database_id = t.database AND u.user_type_id = t.user_type_id
WHERE u.table_columns <> '';

CREATE VIEW emulator_sys.stats AS
SELECT i.database, i.object_id, i.name, i.index_id AS stats_id, 0::emulator.bit AS auto_created, 0::emulator.bit AS user_created,
    0::emulator.bit AS no_recompute, i.has_filter, i.filter_definition, 0::emulator.bit AS is_temporary, 0::emulator.bit AS is_incremental,
    0::emulator.bit AS has_persisted_sample, 0 AS stats_generation_method,
    'SORT_BASED_STATISTICS'::varchar(80) AS stats_generation_method_desc, 0::emulator.bit AS auto_drop
FROM emulator_sys.indexes i WHERE i.index_id > 0;

CREATE VIEW emulator_sys.stats_columns AS
SELECT c.database, c.object_id, c.index_id AS stats_id, c.key_ordinal::int AS stats_column_id, c.column_id
FROM emulator_sys.index_columns c WHERE c.key_ordinal > 0;

CREATE VIEW emulator_sys.master_files AS
WITH files AS (
    SELECT f.* FROM emulator.files f
    UNION ALL SELECT d.database_id, n.file_id, n.data_space_id, d.name || n.suffix, d.name || n.extension, 1024, n.max_size, 8192, false
    FROM emulator.databases d, (VALUES (1, 1, '', '.mdf', -1), (2, 0, '_log', '_log.ldf', 268435456))
        AS n (file_id, data_space_id, suffix, extension, max_size)
    WHERE NOT EXISTS (SELECT FROM emulator.files f WHERE f.database_id = d.database_id AND f.file_id = n.file_id))
SELECT f.database_id, f.file_id, NULL::uuid AS file_guid, (f.data_space_id = 0)::int::emulator.tinyint AS type,
    (CASE f.data_space_id WHEN 0 THEN 'LOG' ELSE 'ROWS' END)::varchar(60) AS type_desc,
    f.data_space_id, f.name::emulator.sysname AS name, f.physical_name::varchar(260) AS physical_name,
    0::emulator.tinyint AS state, 'ONLINE'::varchar(60) AS state_desc, f.size, f.max_size, f.growth,
    0::emulator.bit AS is_media_read_only, 0::emulator.bit AS is_read_only, 0::emulator.bit AS is_sparse,
    f.is_percent_growth::int::emulator.bit AS is_percent_growth, 0::emulator.bit AS is_name_reserved, 0::emulator.bit AS is_persistent_log_buffer,
    NULL::numeric(25) AS create_lsn, NULL::numeric(25) AS drop_lsn, NULL::numeric(25) AS read_only_lsn, NULL::numeric(25) AS read_write_lsn,
    NULL::numeric(25) AS differential_base_lsn, NULL::uuid AS differential_base_guid, NULL::emulator.datetime AS differential_base_time,
    NULL::numeric(25) AS redo_start_lsn, NULL::uuid AS redo_start_fork_guid, NULL::numeric(25) AS redo_target_lsn,
    NULL::uuid AS redo_target_fork_guid, NULL::numeric(25) AS backup_lsn, NULL::int AS credential_id
FROM files f;

CREATE VIEW emulator_sys.database_files AS
SELECT m.database_id AS database, m.file_id, m.file_guid, m.type, m.type_desc, m.data_space_id, m.name, m.physical_name, m.state, m.state_desc,
    m.size, m.max_size, m.growth, m.is_media_read_only, m.is_read_only, m.is_sparse, m.is_percent_growth, m.is_name_reserved,
    m.is_persistent_log_buffer, m.create_lsn, m.drop_lsn, m.read_only_lsn, m.read_write_lsn, m.differential_base_lsn,
    m.differential_base_guid, m.differential_base_time, m.redo_start_lsn, m.redo_start_fork_guid, m.redo_target_lsn,
    m.redo_target_fork_guid, m.backup_lsn
FROM emulator_sys.master_files m;

CREATE VIEW emulator_sys.dm_os_host_info AS
SELECT 'Linux'::varchar(256) AS host_platform, 'Linux'::varchar(256) AS host_distribution, ''::varchar(256) AS host_release,
    ''::varchar(256) AS host_service_pack_level, NULL::int AS host_sku, 0 AS os_language_version, 'X64'::varchar(256) AS host_architecture;

CREATE VIEW emulator_sys.servers AS
SELECT 0 AS server_id, 'FLOODMARK'::emulator.sysname AS name, 'SQL Server'::emulator.sysname AS product, 'SQLNCLI'::emulator.sysname AS provider,
    NULL::varchar(4000) AS data_source, NULL::varchar(4000) AS location, NULL::varchar(4000) AS provider_string, NULL::emulator.sysname AS catalog,
    0 AS connect_timeout, 0 AS query_timeout, 0::emulator.bit AS is_linked, 0::emulator.bit AS is_remote_login_enabled,
    0::emulator.bit AS is_rpc_out_enabled, 1::emulator.bit AS is_data_access_enabled, 0::emulator.bit AS is_collation_compatible,
    1::emulator.bit AS uses_remote_collation, NULL::emulator.sysname AS collation_name;

CREATE VIEW emulator_sys.time_zone_info AS
SELECT z.name::emulator.sysname AS name,
    tsql.offset_text((extract(epoch FROM (now() AT TIME ZONE z.zone) - (now() AT TIME ZONE 'UTC')) / 60)::int)::varchar(6) AS current_utc_offset,
    (SELECT n.is_dst::int FROM pg_timezone_names n WHERE n.name = z.zone LIMIT 1)::emulator.bit AS is_currently_dst
FROM tsql.windows_zones() z;

-- What there is none of: features that are refused. The views are there and empty, as in a database that uses none. -----

DO $$
DECLARE
    empty record;
BEGIN
    FOR empty IN SELECT * FROM (VALUES
        ('partition_functions', 'name sysname, function_id int, type char2, type_desc nvarchar60, fanout int, boundary_value_on_right bit, is_system bit, create_date datetime, modify_date datetime'),
        ('partition_schemes', 'name sysname, data_space_id int, type char2, type_desc nvarchar60, is_default bit, is_system bit, function_id int'),
        ('partition_range_values', 'function_id int, boundary_id int, parameter_id int, value sql_variant'),
        ('partition_parameters', 'function_id int, parameter_id int, system_type_id tinyint, max_length smallint, precision tinyint, scale tinyint, collation_name sysname, user_type_id int'),
        ('destination_data_spaces', 'partition_scheme_id int, destination_id int, data_space_id int'),
        ('periods', 'name sysname, period_type tinyint, period_type_desc nvarchar60, object_id int, start_column_id int, end_column_id int'),
        ('xml_schema_collections', 'xml_collection_id int, schema_id int, principal_id int, name sysname, create_date datetime, modify_date datetime'),
        ('xml_indexes', 'object_id int, name sysname, index_id int, type tinyint, type_desc nvarchar60, is_unique bit, data_space_id int, using_xml_index_id int, secondary_type char1, secondary_type_desc nvarchar60'),
        ('spatial_indexes', 'object_id int, name sysname, index_id int, type tinyint, type_desc nvarchar60, spatial_index_type tinyint, spatial_index_type_desc nvarchar60, tessellation_scheme sysname'),
        ('fulltext_catalogs', 'fulltext_catalog_id int, name sysname, path nvarchar60, is_default bit, is_accent_sensitivity_on bit, data_space_id int, file_id int, principal_id int, is_importing bit'),
        ('fulltext_indexes', 'object_id int, unique_index_id int, fulltext_catalog_id int, is_enabled bit, change_tracking_state char1, change_tracking_state_desc nvarchar60, has_crawl_completed bit, crawl_type char1, crawl_type_desc nvarchar60, crawl_start_date datetime, crawl_end_date datetime, incremental_timestamp varbinary8, stoplist_id int, data_space_id int, property_list_id int'),
        ('fulltext_index_columns', 'object_id int, column_id int, type_column_id int, language_id int, statistical_semantics int'),
        ('assemblies', 'name sysname, principal_id int, assembly_id int, clr_name nvarchar4000, permission_set tinyint, permission_set_desc nvarchar60, is_visible bit, create_date datetime, modify_date datetime, is_user_defined bit'),
        ('assembly_types', 'name sysname, system_type_id tinyint, user_type_id int, schema_id int, principal_id int, assembly_id int, assembly_class sysname'),
        ('assembly_modules', 'object_id int, assembly_id int, assembly_class sysname, assembly_method sysname, null_on_null_input bit, execute_as_principal_id int'),
        ('numbered_procedures', 'object_id int, procedure_number smallint, definition nvarchar4000'),
        ('asymmetric_keys', 'name sysname, principal_id int, asymmetric_key_id int, pvt_key_encryption_type char2, algorithm char2, key_length int'),
        ('certificates', 'name sysname, certificate_id int, principal_id int, pvt_key_encryption_type char2, issuer_name nvarchar4000, cert_serial_number nvarchar60, subject nvarchar4000, expiry_date datetime, start_date datetime'),
        ('credentials', 'credential_id int, name sysname, credential_identity nvarchar4000, create_date datetime, modify_date datetime, target_type nvarchar60, target_id int'),
        ('external_data_sources', 'data_source_id int, name sysname, location nvarchar4000, type_desc nvarchar60, type tinyint'),
        ('external_tables', 'name sysname, object_id int, schema_id int, data_source_id int, file_format_id int, location nvarchar4000'),
        ('external_file_formats', 'file_format_id int, name sysname, format_type nvarchar60'),
        ('plan_guides', 'plan_guide_id int, name sysname, create_date datetime, modify_date datetime, is_disabled bit, query_text nvarchar4000, scope_type tinyint, scope_type_desc nvarchar60'),
        ('service_queues', 'name sysname, object_id int, principal_id int, schema_id int, parent_object_id int, type char2, type_desc nvarchar60, create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, is_schema_published bit, max_readers smallint, activation_procedure nvarchar4000, execute_as_principal_id int, is_activation_enabled bit, is_receive_enabled bit, is_enqueue_enabled bit, is_retention_enabled bit, is_poison_message_handling_enabled bit'),
        ('services', 'name sysname, service_id int, principal_id int, service_queue_id int'),
        ('column_encryption_keys', 'name sysname, column_encryption_key_id int, create_date datetime, modify_date datetime'),
        ('column_master_keys', 'name sysname, column_master_key_id int, create_date datetime, modify_date datetime'),
        ('availability_groups', 'group_id uniqueidentifier, name sysname, resource_id nvarchar60'),
        ('availability_replicas', 'replica_id uniqueidentifier, group_id uniqueidentifier, replica_server_name nvarchar60'),
        ('linked_logins', 'server_id int, local_principal_id int, uses_self_credential bit, remote_name sysname, modify_date datetime'),
        ('edge_constraints', 'name sysname, object_id int, schema_id int, parent_object_id int'),
        ('database_audit_specifications', 'database_specification_id int, name sysname, create_date datetime, is_state_enabled bit'),
        ('event_notifications', 'name sysname, object_id int, parent_class tinyint, parent_id int'),
        ('column_store_segments', 'partition_id bigint, column_id int, segment_id int'),
        ('hash_indexes', 'object_id int, name sysname, index_id int, type tinyint, type_desc nvarchar60, bucket_count int')) AS v (name, columns)
    LOOP
        EXECUTE format('CREATE VIEW emulator_sys.%I AS SELECT %s WHERE false', empty.name, (
            SELECT string_agg(format('NULL::%s AS %I', CASE (regexp_split_to_array(c, ' '))[2]
                WHEN 'nvarchar60' THEN 'varchar(60)' WHEN 'nvarchar4000' THEN 'varchar(4000)' WHEN 'varbinary8' THEN 'bytea'
                WHEN 'uniqueidentifier' THEN 'uuid' WHEN 'int' THEN 'int' WHEN 'bigint' THEN 'bigint' WHEN 'smallint' THEN 'smallint'
                ELSE 'emulator.' || (regexp_split_to_array(c, ' '))[2] END, (regexp_split_to_array(c, ' '))[1]), ', ' ORDER BY n)
            FROM regexp_split_to_table(empty.columns, ', ') WITH ORDINALITY AS s (c, n)));
    END LOOP;
END $$;

-- The database's own secrets ------------------------------------------------------------------------------------------

CREATE VIEW emulator_sys.symmetric_keys AS
SELECT k.database_id AS database, '##MS_DatabaseMasterKey##'::emulator.sysname AS name, 1 AS principal_id, 101 AS symmetric_key_id,
    256 AS key_length, 'A3'::emulator.char2 AS key_algorithm, 'AES_256'::varchar(60) AS algorithm_desc,
    k.created_at::emulator.datetime AS create_date, k.modified_at::emulator.datetime AS modify_date
FROM emulator.master_keys k;

CREATE VIEW emulator_sys.database_scoped_credentials AS
SELECT c.database_id AS database, c.name::emulator.sysname AS name, 1 AS principal_id, c.credential_id,
    c.identity::varchar(4000) AS credential_identity, c.created_at::emulator.datetime AS create_date,
    c.modified_at::emulator.datetime AS modify_date, NULL::varchar(100) AS target_type, NULL::int AS target_id
FROM emulator.credentials c;

-- Change event streaming ------------------------------------------------------------------------------------------------

-- OFFSET 0: the right is checked once, also where there are no rows.
CREATE VIEW emulator_sys.dm_change_feed_errors AS
SELECT d.database_id AS database, e.session_id, 3::emulator.tinyint AS source_task, NULL::int AS table_id,
    NULL::uuid AS table_group_id, 7 AS capture_phase_number, e.entry_time::emulator.datetime AS entry_time,
    e.error_number, e.error_severity, e.error_state, e.error_message, e.batch_start_lsn,
    NULL::varchar(23) AS batch_end_lsn, NULL::varchar(23) AS tran_begin_lsn, NULL::varchar(23) AS tran_commit_lsn,
    NULL::varchar(23) AS sequence_value, NULL::int AS command_id
FROM emulator.databases d CROSS JOIN LATERAL (SELECT * FROM emulator.event_stream_errors f
    WHERE f.database_id = d.database_id AND emulator.may_read_commits(d.name) OFFSET 0) AS e;

CREATE VIEW emulator_sys.dm_change_feed_log_scan_sessions AS
SELECT d.database_id AS database, s.session_id, s.start_time::emulator.datetime AS start_time,
    s.end_time::emulator.datetime AS end_time, s.duration, s.batch_processing_phase, s.error_count, s.batch_start_lsn,
    s.currently_processed_lsn, s.batch_end_lsn, s.tran_count, s.currently_processed_commit_lsn,
    s.currently_processed_commit_time::emulator.datetime AS currently_processed_commit_time, s.log_record_count,
    s.schema_change_count, s.command_count, s.latency, s.empty_scan_count, s.failed_sessions_count
FROM emulator.databases d CROSS JOIN LATERAL (SELECT * FROM emulator.event_stream_scans f
    WHERE f.database_id = d.database_id AND emulator.may_read_commits(d.name) OFFSET 0) AS s;

-- Change Tracking -----------------------------------------------------------------------------------------------------

CREATE VIEW emulator_sys.change_tracking_databases AS
SELECT t.database_id, t.is_auto_cleanup_on::int::emulator.bit AS is_auto_cleanup_on, t.retention_period,
    t.retention_period_units::emulator.tinyint AS retention_period_units,
    ((ARRAY['MINUTES', 'HOURS', 'DAYS'])[t.retention_period_units])::varchar(60) AS retention_period_units_desc,
    t.cleanup_version AS max_cleanup_version
FROM emulator.change_tracking_databases t WHERE t.is_on;

CREATE VIEW emulator_sys.change_tracking_tables AS
SELECT t.database_id AS database, t.object_id, t.is_track_columns_updated_on::int::emulator.bit AS is_track_columns_updated_on,
    t.min_valid_version, t.begin_version, t.cleanup_version
FROM emulator.change_tracking_tables t JOIN emulator.visible_objects o ON o.object_id = t.object_id;

-- The side tables alone. A server's documents do not say who sees them: here it is who sees the table's definition.
CREATE VIEW emulator_sys.internal_tables AS
SELECT t.database_id AS database, ('change_tracking_' || t.object_id)::emulator.sysname AS name, t.side_table_id AS object_id,
    NULL::int AS principal_id, 4 AS schema_id, t.object_id AS parent_object_id, 'IT'::emulator.char2 AS type,
    'INTERNAL_TABLE'::varchar(60) AS type_desc, t.began_at::emulator.datetime AS create_date,
    t.began_at::emulator.datetime AS modify_date, 1::emulator.bit AS is_ms_shipped, 0::emulator.bit AS is_published,
    0::emulator.bit AS is_schema_published, 209::emulator.tinyint AS internal_type,
    'CHANGE_TRACKING'::varchar(60) AS internal_type_desc, t.object_id AS parent_id, 0 AS parent_minor_id,
    0 AS lob_data_space_id, NULL::int AS filestream_data_space_id
FROM emulator.change_tracking_tables t
WHERE current_setting('is_superuser') = 'on' OR emulator.caller_defines(t.database_id, t.object_id);

CREATE VIEW emulator_sys.dm_tran_commit_table AS
SELECT c.database_id AS database, c.commit_ts, c.xdes_id, c.commit_lbn, c.commit_csn, c.commit_time::emulator.datetime AS commit_time
FROM emulator.change_tracking_commits c JOIN emulator.databases d USING (database_id)
WHERE emulator.may_read_commits(d.name) AND c.commit_ts IS NOT NULL;

-- The views of before SQL Server 2005, with the columns that scripts read ---------------------------------------------

CREATE VIEW emulator_sys.sysobjects AS
SELECT o.database, o.name, o.object_id AS id, (CASE o.type WHEN 'PK' THEN 'K' WHEN 'UQ' THEN 'K' ELSE o.type END)::emulator.char2 AS xtype,
    o.schema_id::smallint AS uid, 0::smallint AS info, 0 AS status, 0 AS base_schema_ver, 0 AS replinfo, o.parent_object_id AS parent_obj,
    o.create_date AS crdate, 0::smallint AS ftcatid, 0 AS schema_ver, 0 AS stats_schema_ver,
    (CASE o.type WHEN 'PK' THEN 'K' WHEN 'UQ' THEN 'K' ELSE o.type END)::emulator.char2 AS type, 0::smallint AS userstat,
    0::smallint AS sysstat, 0::smallint AS indexdel, o.create_date AS refdate, 0 AS version, 0 AS deltrig, 0 AS instrig, 0 AS updtrig,
    0 AS seltrig, 0 AS category, 0::smallint AS cache
FROM emulator_sys.all_objects o;

CREATE VIEW emulator_sys.syscolumns AS
SELECT c.database, c.name, c.object_id AS id, c.system_type_id AS xtype, 0::emulator.tinyint AS typestat, c.user_type_id::smallint AS xusertype,
    c.max_length AS length, c.precision AS xprec, c.scale AS xscale, c.column_id::smallint AS colid, 0::smallint AS xoffset,
    0::emulator.tinyint AS bitpos, 0::emulator.tinyint AS reserved, c.column_id::smallint AS colstat, c.default_object_id AS cdefault, 0 AS domain,
    0::smallint AS number, c.column_id::smallint AS colorder, c.column_id::smallint AS "offset", 0 AS collationid, 0 AS language,
    (CASE WHEN c.is_nullable = 1 THEN 8 ELSE 0 END + CASE WHEN c.is_identity = 1 THEN 128 ELSE 0 END)::emulator.tinyint AS status,
    c.system_type_id AS type, c.user_type_id::smallint AS usertype, NULL::varchar(255) AS printfmt, c.precision::smallint AS prec, c.scale::int AS scale,
    c.is_computed::int AS iscomputed, 0 AS isoutparam, c.is_nullable::int AS isnullable, c.collation_name AS collation
FROM emulator_sys.all_columns c
UNION ALL
SELECT p.database, p.name, p.object_id, p.system_type_id, 0, p.user_type_id, p.max_length, p.precision, p.scale, p.parameter_id, 0, 0, 0, 0, 0, 0,
    1, p.parameter_id, 0, 0, 0, (p.is_output * 64), p.system_type_id, p.user_type_id, NULL, p.precision, p.scale, 0, p.is_output, 1, NULL
FROM emulator_sys.all_parameters p WHERE p.parameter_id > 0;

CREATE VIEW emulator_sys.sysindexes AS
SELECT i.database, i.object_id AS id, (CASE WHEN i.is_unique = 1 THEN 2 ELSE 0 END + CASE WHEN i.index_id = 1 THEN 16 ELSE 0 END
        + CASE WHEN i.is_primary_key = 1 THEN 2048 ELSE 0 END + CASE WHEN i.is_unique_constraint = 1 THEN 4096 ELSE 0 END) AS status,
    NULL::bytea AS first, i.index_id::smallint AS indid, NULL::bytea AS root, 0::smallint AS minlen,
    (SELECT count(*) FROM emulator_sys.index_columns c WHERE c.object_id = i.object_id AND c.index_id = i.index_id AND c.key_ordinal > 0)::smallint AS keycnt,
    1::smallint AS groupid, coalesce(p.used, 0)::int AS dpages, coalesce(p.reserved, 0)::int AS reserved, coalesce(p.used, 0)::int AS used,
    p.row_count AS rowcnt, 0 AS rowmodctr, 0::emulator.tinyint AS "OrigFillFactor", 0::emulator.tinyint AS "StatVersion", i.name, p.row_count::int AS rows
FROM emulator_sys.indexes i LEFT JOIN (
    SELECT s.database, s.object_id, s.index_id, sum(s.used_page_count) AS used, sum(s.reserved_page_count) AS reserved, sum(s.row_count)::bigint AS row_count
    FROM emulator_sys.dm_db_partition_stats s GROUP BY s.database, s.object_id, s.index_id) p
    ON p.database = i.database AND p.object_id = i.object_id AND p.index_id = i.index_id;

CREATE VIEW emulator_sys.sysindexkeys AS
SELECT c.database, c.object_id AS id, c.index_id::smallint AS indid, c.column_id::smallint AS colid, c.key_ordinal::smallint AS keyno
FROM emulator_sys.index_columns c;

CREATE VIEW emulator_sys.sysusers AS
SELECT p.database, p.principal_id::smallint AS uid, 0::smallint AS status, p.name, p.sid, p.create_date AS createdate, p.modify_date AS updatedate,
    0::smallint AS altuid, 0::smallint AS gid, NULL::varchar(255) AS environ, (CASE WHEN p.type = 'S' THEN 1 ELSE 0 END) AS hasdbaccess,
    (CASE WHEN p.type = 'S' THEN 1 ELSE 0 END) AS islogin, 0 AS isntname, 0 AS isntgroup, 0 AS isntuser,
    (CASE WHEN p.type = 'S' THEN 1 ELSE 0 END) AS issqluser, 0 AS isaliased, (CASE WHEN p.type = 'R' THEN 1 ELSE 0 END) AS issqlrole, 0 AS isapprole
FROM emulator_sys.database_principals p;

CREATE VIEW emulator_sys.sysmembers AS
SELECT m.database, m.member_principal_id::smallint AS memberuid, m.role_principal_id::smallint AS groupuid FROM emulator_sys.database_role_members m;

CREATE VIEW emulator_sys.syscomments AS
SELECT m.database, m.object_id AS id, 1::smallint AS number, 1::smallint AS colid, 0::smallint AS status, NULL::bytea AS ctext,
    2::smallint AS texttype, 0::smallint AS language, 0::emulator.bit AS encrypted, 0::emulator.bit AS compressed, m.definition::varchar(4000) AS text
FROM emulator_sys.sql_modules m
UNION ALL SELECT c.database, c.object_id, 0, 1, 0, NULL, 2, 0, 0, 0, c.definition::varchar(4000) FROM emulator_sys.default_constraints c
UNION ALL SELECT c.database, c.object_id, 0, 1, 0, NULL, 2, 0, 0, 0, c.definition::varchar(4000) FROM emulator_sys.check_constraints c;

CREATE VIEW emulator_sys.systypes AS
SELECT t.database, t.name, t.system_type_id AS xtype, 0::emulator.tinyint AS status, t.user_type_id::smallint AS xusertype, t.max_length AS length,
    t.precision AS xprec, t.scale AS xscale, 0 AS tdefault, 0 AS domain, t.schema_id::smallint AS uid, 0::smallint AS reserved, 0 AS collationid,
    t.user_type_id::smallint AS usertype, 0::emulator.bit AS variable, t.is_nullable AS allownulls, t.system_type_id AS type,
    NULL::varchar(255) AS printfmt, t.precision::smallint AS prec, t.scale, t.collation_name AS collation
FROM emulator_sys.types t;

CREATE VIEW emulator_sys.sysforeignkeys AS
SELECT c.database, c.constraint_object_id AS constid, c.parent_object_id AS fkeyid, c.referenced_object_id AS rkeyid,
    c.parent_column_id::smallint AS fkey, c.referenced_column_id::smallint AS rkey, c.constraint_column_id::smallint AS keyno
FROM emulator_sys.foreign_key_columns c;

CREATE VIEW emulator_sys.sysconstraints AS
SELECT o.database, o.object_id AS constid, o.parent_object_id AS id,
    coalesce((SELECT c.parent_column_id FROM emulator.check_constraints c WHERE c.object_id = o.object_id),
        (SELECT d.parent_column_id FROM emulator.default_constraints d WHERE d.object_id = o.object_id), 0)::smallint AS colid,
    0::emulator.tinyint AS spare1, (CASE o.type WHEN 'PK' THEN 1 WHEN 'UQ' THEN 2 WHEN 'F' THEN 3 WHEN 'C' THEN 4 ELSE 5 END) AS status,
    0 AS actions, 0 AS error
FROM emulator_sys.objects o WHERE o.type IN ('PK', 'UQ', 'F', 'C', 'D');

CREATE VIEW emulator_sys.sysdatabases AS
SELECT d.name, d.database_id::smallint AS dbid, d.owner_sid AS sid, 0::smallint AS mode, 0 AS status, 0 AS status2, d.create_date AS crdate,
    timestamp '1900-01-01'::emulator.datetime AS reserved, 0 AS category, d.compatibility_level AS cmptlevel,
    (d.name || '.mdf')::varchar(260) AS filename, 852::smallint AS version
FROM emulator_sys.databases d;

CREATE VIEW emulator_sys.syslogins AS
SELECT p.sid, 9::smallint AS status, p.create_date AS createdate, p.modify_date AS updatedate, p.create_date AS accdate, p.name,
    p.default_database_name AS dbname, p.default_language_name AS language, 0 AS denylogin, 1 AS hasaccess, 0 AS isntname, 0 AS isntgroup, 0 AS isntuser,
    (p.name = 'sa' OR EXISTS (SELECT FROM emulator.logins l WHERE l.principal_id = p.principal_id AND l.is_sysadmin))::int AS sysadmin,
    p.name AS loginname
FROM emulator_sys.server_principals p WHERE p.type = 'S';

CREATE VIEW emulator_sys.sysfiles AS
SELECT f.database, f.file_id::smallint AS fileid, f.data_space_id::smallint AS groupid, f.size, f.max_size AS maxsize, f.growth,
    0 AS status, 0 AS perf, f.name, f.physical_name AS filename
FROM emulator_sys.database_files f;

CREATE VIEW emulator_sys.sysfilegroups AS
SELECT g.database, g.data_space_id::smallint AS groupid, 0::smallint AS allocpolicy, 0 AS status, g.name AS groupname FROM emulator_sys.filegroups g;

CREATE VIEW emulator_sys.sysservers AS
SELECT s.server_id::smallint AS srvid, 0::smallint AS srvstatus, s.name AS srvname, s.product AS srvproduct, s.provider AS providername,
    s.name AS srvnetname, 0::emulator.bit AS isremote FROM emulator_sys.servers s;

CREATE VIEW emulator_sys.sysprocesses AS
SELECT s.session_id AS spid, 0::smallint AS kpid, 0::smallint AS blocked, db.database_id::smallint AS dbid, s.login_name AS loginame,
    s.program_name, s.login_time, s.host_name AS hostname, s.status, 0 AS open_tran
FROM emulator_sys.dm_exec_sessions s LEFT JOIN emulator.databases db ON db.database_id = s.database_id;
