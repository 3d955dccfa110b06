-- Metadata functions: ids, names and properties, read from the emulator's catalog.

-- Metadata ------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.db_id(name text, current text) RETURNS int2 LANGUAGE sql STABLE AS $$
    SELECT database_id::int2 FROM emulator.databases d WHERE lower(d.name) = lower(coalesce($1, $2)) ORDER BY d.name = coalesce($1, $2) DESC LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.db_name(id int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $1 IS NULL THEN $2 ELSE (SELECT name FROM emulator.databases WHERE database_id = $1) END $$;
CREATE OR REPLACE FUNCTION tsql.schema_id(name text, current text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT s.schema_id FROM emulator.schemas s WHERE s.database_id = tsql.db_id($2, $2) AND lower(s.name) = lower(coalesce($1, 'dbo')) LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.schema_name(id int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT s.name FROM emulator.schemas s WHERE s.database_id = tsql.db_id($2, $2)
        AND s.schema_id = coalesce($1, (SELECT schema_id FROM emulator.schemas WHERE database_id = s.database_id AND name = 'dbo')) $$;
CREATE OR REPLACE FUNCTION tsql.object_id(name text, type text, current text) RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE
    parts text[] := tsql.name_parts(name);
    wanted text := btrim(upper(type));
    found int;
BEGIN
    IF parts[1] LIKE '#%' THEN
        RETURN coalesce(to_regclass('pg_temp.' || quote_ident(parts[1]))::oid,
            (SELECT p.oid FROM pg_proc p WHERE p.pronamespace = pg_my_temp_schema() AND p.proname = lower(parts[1])))::int;
    END IF;
    SELECT o.object_id INTO found
    FROM emulator.visible_objects o JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
    WHERE o.database_id = tsql.db_id(nullif(parts[3], ''), current) AND lower(o.name) = lower(parts[1])
      AND CASE WHEN coalesce(parts[2], '') = '' THEN s.name IN ('dbo', 'sys') ELSE lower(s.name) = lower(parts[2]) END
      AND (wanted IS NULL OR o.type = wanted)
    ORDER BY (o.name = parts[1]) DESC, (s.name = 'dbo') DESC LIMIT 1;
    RETURN found;
END $$;
CREATE OR REPLACE FUNCTION tsql.object_name(id int, database int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT o.name FROM emulator.visible_objects o WHERE o.object_id = $1 AND o.database_id = coalesce($2, tsql.db_id($3, $3)) $$;
CREATE OR REPLACE FUNCTION tsql.object_schema_name(id int, database int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT s.name FROM emulator.visible_objects o JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
    WHERE o.object_id = $1 AND o.database_id = coalesce($2, tsql.db_id($3, $3)) $$;
CREATE OR REPLACE FUNCTION tsql.object_definition(id int) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT definition FROM emulator.visible_objects WHERE object_id = $1 $$;
CREATE OR REPLACE FUNCTION tsql.col_name(table_id int, id int) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT name FROM emulator.columns WHERE object_id = $1 AND column_id = $2 $$;
CREATE OR REPLACE FUNCTION tsql.byte_length(type_name text, length int, digits int) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN type_name IN ('decimal', 'numeric') THEN CASE WHEN digits < 10 THEN 5 WHEN digits < 20 THEN 9 WHEN digits < 29 THEN 13 ELSE 17 END
        WHEN type_name IN ('char', 'varchar', 'binary', 'varbinary') THEN length
        WHEN type_name IN ('nchar', 'nvarchar') THEN CASE WHEN length < 0 THEN -1 ELSE length * 2 END
        ELSE coalesce((SELECT t.max_length FROM emulator.system_types() t WHERE t.tsql_name = type_name), length) END $$;
CREATE OR REPLACE FUNCTION tsql.col_length(table_name text, column_name text, current text) RETURNS int2 LANGUAGE sql STABLE AS $$
    SELECT tsql.byte_length(c.type_name, c.length, c.precision)::int2 FROM emulator.columns c
    WHERE c.object_id = tsql.object_id($1, NULL, $3) AND lower(c.name) = lower($2) LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.columnproperty(id int, column_name text, property text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE lower($3) WHEN 'isidentity' THEN (c.identity_seed IS NOT NULL)::int WHEN 'iscomputed' THEN (c.computed_definition IS NOT NULL)::int
        WHEN 'allowsnull' THEN c.is_nullable::int WHEN 'columnid' THEN c.column_id WHEN 'ordinal' THEN c.column_id WHEN 'scale' THEN c.scale
        WHEN 'precision' THEN CASE WHEN c.length <> 0 THEN c.length ELSE c.precision END WHEN 'isrowguidcol' THEN c.is_rowguidcol::int
        WHEN 'charmaxlen' THEN c.length WHEN 'issparse' THEN 0 WHEN 'iscolumnset' THEN 0 WHEN 'ishidden' THEN 0
        WHEN 'generatedalwaystype' THEN 0 WHEN 'isidnotforrepl' THEN 0 END
    FROM emulator.columns c WHERE c.object_id = $1 AND lower(c.name) = lower($2) LIMIT 1 $$;
-- Properties of tables, constraints and programs. One that a server has and this one does not know is refused.
CREATE OR REPLACE FUNCTION tsql.rarer_property(o emulator.objects, property text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN $2 = 'tablehasclustindex' THEN EXISTS (SELECT FROM emulator.indexes i WHERE i.object_id = o.object_id AND i.is_clustered)::int
        WHEN $2 = 'tablehasnonclustindex' THEN EXISTS (SELECT FROM emulator.indexes i WHERE i.object_id = o.object_id AND NOT i.is_clustered)::int
        WHEN $2 = 'tablehasindex' THEN EXISTS (SELECT FROM emulator.indexes i WHERE i.object_id = o.object_id)::int
        WHEN $2 = 'tablehasforeignkey' THEN EXISTS (SELECT FROM emulator.foreign_keys f WHERE f.parent_object_id = o.object_id)::int
        WHEN $2 = 'tablehasforeignref' THEN EXISTS (SELECT FROM emulator.foreign_keys f WHERE f.referenced_object_id = o.object_id)::int
        WHEN $2 = 'tablehascheckcnst' THEN EXISTS (SELECT FROM emulator.check_constraints k WHERE k.parent_object_id = o.object_id)::int
        WHEN $2 = 'tablehasdefaultcnst' THEN EXISTS (SELECT FROM emulator.default_constraints k WHERE k.parent_object_id = o.object_id)::int
        WHEN $2 = 'tablehasuniquecnst' THEN EXISTS (SELECT FROM emulator.objects k WHERE k.parent_object_id = o.object_id AND k.type = 'UQ')::int
        WHEN $2 = 'tablehasrowguidcol' THEN EXISTS (SELECT FROM emulator.columns c WHERE c.object_id = o.object_id AND c.is_rowguidcol)::int
        WHEN $2 = 'tablehastimestamp' THEN EXISTS (SELECT FROM emulator.columns c WHERE c.object_id = o.object_id AND c.type_name = 'rowversion')::int
        WHEN $2 IN ('tablehascolumnset', 'tablehasactivefulltextindex', 'tableisfake', 'tableispinned', 'tableislockedonbulkload',
            'tableismemoryoptimized', 'tabletemporaltype', 'tablehasvardecimalstorageformat', 'execisstartup', 'execiswithnativecompilation',
            'cnstisnotrepl') THEN 0
        WHEN $2 IN ('cnstisclustkey', 'cnstisnonclustkey') AND o.type IN ('PK', 'UQ') THEN (SELECT (i.is_clustered = ($2 = 'cnstisclustkey'))::int
            FROM emulator.indexes i WHERE i.constraint_object_id = o.object_id)
        WHEN $2 IN ('cnstisclustkey', 'cnstisnonclustkey') THEN 0
        WHEN $2 IN ('cnstisdisabled', 'cnstisnottrusted') THEN coalesce(
            (SELECT CASE $2 WHEN 'cnstisdisabled' THEN k.is_disabled ELSE k.is_not_trusted END FROM emulator.check_constraints k WHERE k.object_id = o.object_id),
            (SELECT CASE $2 WHEN 'cnstisdisabled' THEN f.is_disabled ELSE f.is_not_trusted END FROM emulator.foreign_keys f WHERE f.object_id = o.object_id),
            false)::int
        WHEN $2 = 'cnstisdeletecascade' THEN coalesce((SELECT f.delete_action = 1 FROM emulator.foreign_keys f WHERE f.object_id = o.object_id), false)::int
        WHEN $2 = 'cnstisupdatecascade' THEN coalesce((SELECT f.update_action = 1 FROM emulator.foreign_keys f WHERE f.object_id = o.object_id), false)::int
        WHEN $2 IN ('execisansinullson', 'execisquotedidenton') THEN 1
        WHEN $2 IN ('cnstiscolumn', 'execisafterdeletetrigger', 'execisaftertrigger', 'execisdeletetrigger', 'execisfirstdeletetrigger',
            'execisfirstinserttrigger', 'execisfirstupdatetrigger', 'execisinserttrigger', 'execisinsteadoftrigger', 'execislastdeletetrigger',
            'execislastinserttrigger', 'execislastupdatetrigger', 'execistriggerdisabled', 'execistriggernotforrepl', 'execisupdatetrigger',
            'tabledeletetrigger', 'tabledeletetriggercount', 'tablefulltextbackgroundupdateindexon', 'tablefulltextcatalogid', 'tablefulltextkeycolumn',
            'tablehasdeletetrigger', 'tablehasinserttrigger', 'tablehastextimage', 'tablehasupdatetrigger', 'tableinserttrigger',
            'tableinserttriggercount', 'tabletextinrowlimit', 'tableupdatetrigger', 'tableupdatetriggercount')
            THEN tsql.fail(49999, 'sqlserver_emulator does not support OBJECTPROPERTY with %s. See docs/emulator.md.', $2)::int END $$;
CREATE OR REPLACE FUNCTION tsql.objectproperty(id int, property text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE lower($2) WHEN 'istable' THEN (o.type = 'U')::int WHEN 'isusertable' THEN (o.type = 'U' AND NOT o.is_system)::int
        WHEN 'isview' THEN (o.type = 'V')::int WHEN 'isprocedure' THEN (o.type = 'P')::int WHEN 'ownerid' THEN 1 WHEN 'schemaid' THEN o.schema_id
        WHEN 'ismsshipped' THEN o.is_ms_shipped::int WHEN 'isinlinefunction' THEN (o.type = 'IF')::int WHEN 'istablefunction' THEN (o.type IN ('IF', 'TF'))::int
        WHEN 'isprimarykey' THEN (o.type = 'PK')::int WHEN 'issystemtable' THEN 0 WHEN 'isencrypted' THEN 0
        WHEN 'tablehasprimarykey' THEN EXISTS (SELECT FROM emulator.objects k WHERE k.parent_object_id = o.object_id AND k.type = 'PK')::int
        WHEN 'tablehasidentity' THEN EXISTS (SELECT FROM emulator.columns c WHERE c.object_id = o.object_id AND c.identity_seed IS NOT NULL)::int
        WHEN 'isconstraint' THEN (o.type IN ('C', 'D', 'F', 'PK', 'UQ'))::int WHEN 'ischeckcnst' THEN (o.type = 'C')::int
        WHEN 'isdefaultcnst' THEN (o.type = 'D')::int WHEN 'isforeignkey' THEN (o.type = 'F')::int WHEN 'isuniquecnst' THEN (o.type = 'UQ')::int
        WHEN 'istrigger' THEN (o.type = 'TR')::int WHEN 'isscalarfunction' THEN (o.type = 'FN')::int
        WHEN 'isexecuted' THEN (o.type IN ('FN', 'IF', 'P', 'TF', 'TR', 'V'))::int WHEN 'isqueue' THEN 0 WHEN 'isrule' THEN 0 WHEN 'isextendedproc' THEN 0
        ELSE CASE WHEN o.type IN ('U', 'V') AND lower($2) LIKE 'table%' OR o.type IN ('C', 'F', 'PK', 'UQ') AND lower($2) LIKE 'cnst%'
                OR o.type IN ('FN', 'IF', 'P', 'TF', 'TR', 'V') AND lower($2) LIKE 'exec%' THEN tsql.rarer_property(o, lower($2)) END END
    FROM emulator.objects o WHERE o.object_id = $1 $$;
CREATE OR REPLACE FUNCTION tsql.index_col(table_name text, index_id int, key_id int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT c.name FROM emulator.index_columns ic JOIN emulator.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
    WHERE ic.object_id = tsql.object_id($1, NULL, $4) AND ic.index_id = $2 AND ic.key_ordinal = $3 $$;
CREATE OR REPLACE FUNCTION tsql.type_ids() RETURNS TABLE (id int, name text) LANGUAGE sql IMMUTABLE AS $$
    SELECT t.user_type_id, t.name FROM emulator.system_types() t $$;
CREATE OR REPLACE FUNCTION tsql.type_name(type_id int, current text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT name FROM tsql.type_ids() WHERE id = $1),
        (SELECT t.name FROM emulator.user_types t WHERE t.user_type_id = $1 AND t.database_id = tsql.db_id($2, $2))) $$;
CREATE OR REPLACE FUNCTION tsql.type_id(type_name text, current text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT id FROM tsql.type_ids() WHERE name = lower((tsql.name_parts($1))[1])),
        (SELECT t.user_type_id FROM emulator.user_types t WHERE lower(t.name) = lower((tsql.name_parts($1))[1]) AND t.database_id = tsql.db_id($2, $2) LIMIT 1)) $$;
CREATE OR REPLACE FUNCTION tsql.identity_column(table_name text, current text, OUT seed numeric, OUT increment numeric, OUT sequence regclass)
LANGUAGE sql STABLE AS $$
    SELECT c.identity_seed, c.identity_increment,
        pg_get_serial_sequence(quote_ident(s.postgres_name) || '.' || quote_ident(o.postgres_name), c.postgres_name)::regclass
    FROM emulator.columns c JOIN emulator.objects o ON o.object_id = c.object_id
    JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
    WHERE c.object_id = tsql.object_id($1, NULL, $2) AND c.identity_seed IS NOT NULL $$;
CREATE OR REPLACE FUNCTION tsql.ident_current(table_name text, current text) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN abs(i.last) = 9223372036854775807 AND i.is_decimal
        THEN tsql.fail(49999, 'sqlserver_emulator does not support identity values beyond bigint. See docs/emulator.md.', i.last::text)::numeric
        ELSE coalesce(i.last, i.seed) END
    FROM (SELECT pg_sequence_last_value(c.sequence)::numeric AS last, c.seed, c.sequence::text LIKE '%~identity"' AS is_decimal
          FROM tsql.identity_column($1, $2) c) i $$;
CREATE OR REPLACE FUNCTION tsql.ident_seed(table_name text, current text) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT i.seed FROM tsql.identity_column($1, $2) i $$;
CREATE OR REPLACE FUNCTION tsql.ident_incr(table_name text, current text) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT i.increment FROM tsql.identity_column($1, $2) i $$;
-- A setting of the server; cluster.py writes those about the release.
CREATE OR REPLACE FUNCTION emulator.setting(name text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT s.value FROM emulator.settings s WHERE s.name = $1 $$;
CREATE OR REPLACE FUNCTION tsql.serverproperty(property text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE lower($1) WHEN 'productversion' THEN emulator.setting('product_version') WHEN 'productlevel' THEN 'RTM'
        WHEN 'productmajorversion' THEN split_part(emulator.setting('product_version'), '.', 1)
        WHEN 'productminorversion' THEN split_part(emulator.setting('product_version'), '.', 2)
        WHEN 'productbuild' THEN split_part(emulator.setting('product_version'), '.', 3)
        WHEN 'productupdatelevel' THEN emulator.setting('product_update') WHEN 'edition' THEN emulator.setting('edition')
        WHEN 'editionid' THEN '-2117995310' WHEN 'engineedition' THEN '3' WHEN 'servername' THEN emulator.server_name() WHEN 'machinename' THEN emulator.server_name()
        WHEN 'instancename' THEN NULL WHEN 'collation' THEN emulator.server_collation()
        WHEN 'comparisonstyle' THEN tsql.collationproperty(emulator.server_collation(), $1) WHEN 'isclustered' THEN '0'
        WHEN 'ishadrenabled' THEN emulator.has_secondary()::int::text
        WHEN 'issingleuser' THEN '0' WHEN 'isintegratedsecurityonly' THEN '0' WHEN 'isfulltextinstalled' THEN '0' WHEN 'isxtpsupported' THEN '0'
        WHEN 'processid' THEN pg_backend_pid()::text WHEN 'resourceversion' THEN regexp_replace(emulator.setting('product_version'), '^(\d+)\.\d+\.(\d+).*$', '\1.00.\2') WHEN 'lcid' THEN '1033'
        WHEN 'sqlcharsetname' THEN 'iso_1' WHEN 'issqlserveragentrunning' THEN '1' END $$;
CREATE OR REPLACE FUNCTION tsql.databasepropertyex(database text, property text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE lower($2) WHEN 'collation' THEN d.collation_name WHEN 'status' THEN 'ONLINE' WHEN 'updateability'
        THEN CASE WHEN emulator.is_replicated(d.name) AND emulator.is_read_only() THEN 'READ_ONLY' ELSE 'READ_WRITE' END
        WHEN 'useraccess' THEN 'MULTI_USER' WHEN 'version' THEN emulator.setting('database_version') WHEN 'isautoclose' THEN '0' WHEN 'isautoshrink' THEN '0'
        WHEN 'ischangetrackingenabled' THEN (EXISTS (SELECT FROM emulator.change_tracking_databases t WHERE t.database_id = d.database_id AND t.is_on))::int::text
        WHEN 'isinstandby' THEN '0' WHEN 'isansinullsenabled' THEN '1' WHEN 'isfulltextenabled' THEN '0'
        WHEN 'recovery' THEN CASE d.recovery_model WHEN 3 THEN 'SIMPLE' WHEN 2 THEN 'BULK_LOGGED' ELSE 'FULL' END
        WHEN 'comparisonstyle' THEN tsql.collationproperty(d.collation_name, $2) WHEN 'lcid' THEN '1033' END
    FROM emulator.databases d WHERE lower(d.name) = lower($1) LIMIT 1 $$;
CREATE OR REPLACE FUNCTION tsql.collationproperty(collation_name text, property text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE lower($2) WHEN 'codepage' THEN '1252' WHEN 'lcid' THEN '1033' WHEN 'comparisonstyle' THEN c.comparison_style::text
        WHEN 'version' THEN c.version::text END
    FROM emulator.collations() c WHERE lower(c.name) = lower($1) $$;
