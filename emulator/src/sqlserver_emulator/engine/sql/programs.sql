-- What the catalog keeps of functions, triggers and sequences. Run at every start, so that older data folders get it too.

-- A user's function: parameters as in emulator.inline_functions, each with "default_sql" where it has a default.
-- returns: the type of a scalar function ({"type": …, "length": …}), NULL for one that gives a table.
CREATE TABLE IF NOT EXISTS emulator.functions (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    postgres_function text NOT NULL,
    parameters jsonb NOT NULL,
    returns jsonb,
    is_volatile boolean NOT NULL DEFAULT false
);

-- The parameters of a procedure, as emulator.functions has those of a function, each with "output" where it is one.
CREATE TABLE IF NOT EXISTS emulator.procedure_parameters (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    parameters jsonb NOT NULL
);
GRANT SELECT ON emulator.procedure_parameters TO PUBLIC;
CREATE OR REPLACE VIEW emulator.parameter_lists AS
SELECT object_id, parameters, returns FROM emulator.functions
UNION ALL SELECT object_id, parameters, NULL FROM emulator.procedure_parameters;
GRANT SELECT ON emulator.parameter_lists TO PUBLIC;

-- The columns of an inline function with their declared types: [{"name": …, "type": …, "length": …, "nullable": …}].
ALTER TABLE emulator.inline_functions ADD COLUMN IF NOT EXISTS columns jsonb NOT NULL DEFAULT '[]';

-- The columns of a table type as declared, in parentheses; '' for an alias type.
ALTER TABLE emulator.user_types ADD COLUMN IF NOT EXISTS table_columns text NOT NULL DEFAULT '';

-- What a synonym stands for; schema_name '': the default schema of whoever uses it.
CREATE TABLE IF NOT EXISTS emulator.synonyms (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    base_object_name varchar(1035) NOT NULL,
    database_name text NOT NULL,
    schema_name text NOT NULL,
    name text NOT NULL
);

CREATE TABLE IF NOT EXISTS emulator.triggers (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    parent_object_id int NOT NULL,
    events text[] NOT NULL,
    is_instead_of boolean NOT NULL,
    is_disabled boolean NOT NULL DEFAULT false
);

ALTER TABLE emulator.databases ADD COLUMN IF NOT EXISTS service_broker_guid uuid NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE emulator.check_constraints ADD COLUMN IF NOT EXISTS is_disabled boolean NOT NULL DEFAULT false;
ALTER TABLE emulator.check_constraints ADD COLUMN IF NOT EXISTS is_not_trusted boolean NOT NULL DEFAULT false;

-- Triggers run in the interpreter, after the statement and in its transaction. PostgreSQL's part is to keep the rows
-- before and after the change as temporary tables, and to tell the session by a notice which these are. They are used
-- again whenever the same event comes at the same depth of triggers: making a table takes longer than all the rest, and
-- translated and prepared statements are found again.
CREATE OR REPLACE FUNCTION emulator.image_name(relation oid, event text, image text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format('~%s.%s.%s.%s', relation, event, coalesce(nullif(current_setting('emulator.trigger_depth', true), ''), '0'),
                  image)
$$;

-- The names and types of a table's columns, in their order.
CREATE OR REPLACE FUNCTION emulator.row_shape(relation oid) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(format('%s %s %s', attname, atttypid, atttypmod), ',' ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped
$$;

-- An empty one. Few rows are deleted rather than truncated, which makes new files.
DROP FUNCTION IF EXISTS emulator.make_image(text, text);
CREATE OR REPLACE FUNCTION emulator.make_image(name text, relation oid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    image regclass := to_regclass(format('pg_temp.%I', name));
BEGIN
    IF image IS NOT NULL AND emulator.row_shape(image) = emulator.row_shape(relation) THEN
        PERFORM emulator.empty_table(image);
        RETURN;
    END IF;
    IF image IS NOT NULL THEN
        EXECUTE format('DROP TABLE pg_temp.%I', name);
    END IF;
    EXECUTE format('CREATE TEMPORARY TABLE %I AS SELECT * FROM %s LIMIT 0', name, relation::regclass);
    EXECUTE format('GRANT SELECT ON pg_temp.%I TO PUBLIC', name);
END $$;

CREATE OR REPLACE FUNCTION emulator.empty_table(relation regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF pg_relation_size(relation) > 262144 THEN
        EXECUTE format('TRUNCATE %s', relation);
    ELSIF pg_relation_size(relation) > 0 THEN
        EXECUTE format('DELETE FROM %s', relation);
    END IF;
END $$;

-- A table variable's table as new, for its next use; false if it is not there any more. ``identity``: that column, or ''.
CREATE OR REPLACE FUNCTION emulator.empty_table_variable(name text, relation oid, identity text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    counter regclass;
BEGIN
    IF to_regclass(name)::oid IS DISTINCT FROM relation THEN
        RETURN false;
    END IF;
    PERFORM emulator.empty_table(relation::regclass);
    IF identity <> '' THEN
        counter := pg_get_serial_sequence(name, identity);
        PERFORM setval(counter, (SELECT seqstart FROM pg_sequence WHERE seqrelid = counter), false);
    END IF;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION emulator.tell_change(relation oid, event text, instead boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    added text := emulator.image_name(relation, event, 'inserted');
    removed text := emulator.image_name(relation, event, 'deleted');
    changed bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM pg_temp.%I', CASE event WHEN 'DELETE' THEN removed ELSE added END) INTO changed;
    RAISE NOTICE USING MESSAGE = 'emulator.change', DETAIL = json_build_object(
        'table', relation::int, 'event', event, 'instead', instead, 'rows', changed, 'inserted', added, 'deleted', removed,
        'inserted_id', format('pg_temp.%I', added)::regclass::oid::int,
        'deleted_id', format('pg_temp.%I', removed)::regclass::oid::int)::text;
END $$;

CREATE OR REPLACE FUNCTION emulator.after_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    added text;
    removed text;
BEGIN
    -- With an INSTEAD OF trigger for the same event, only what that trigger itself does counts.
    IF TG_NARGS > 0 AND NOT emulator.changes_itself(TG_RELID) THEN
        RETURN NULL;
    END IF;
    added := emulator.image_name(TG_RELID, TG_OP, 'inserted');
    removed := emulator.image_name(TG_RELID, TG_OP, 'deleted');
    PERFORM emulator.make_image(added, TG_RELID);
    PERFORM emulator.make_image(removed, TG_RELID);
    -- The rows are known in this very function only.
    IF TG_OP <> 'DELETE' THEN
        EXECUTE format('INSERT INTO pg_temp.%I SELECT * FROM inserted', added);
    END IF;
    IF TG_OP <> 'INSERT' THEN
        EXECUTE format('INSERT INTO pg_temp.%I SELECT * FROM deleted', removed);
    END IF;
    PERFORM emulator.tell_change(TG_RELID, TG_OP, false);
    RETURN NULL;
END $$;

-- INSTEAD OF: before the statement two empty images, each row into them, and after it the notice.
CREATE OR REPLACE FUNCTION emulator.before_instead() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF emulator.changes_itself(TG_RELID) THEN
        RETURN NULL;
    END IF;
    PERFORM emulator.make_image(emulator.image_name(TG_RELID, TG_OP, 'inserted'), TG_RELID);
    PERFORM emulator.make_image(emulator.image_name(TG_RELID, TG_OP, 'deleted'), TG_RELID);
    RETURN NULL;
END $$;

-- What an INSTEAD OF trigger does to its own table is done.
CREATE OR REPLACE FUNCTION emulator.changes_itself(relation oid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(current_setting('emulator.instead_of', true), '') = relation::text
$$;

CREATE OR REPLACE FUNCTION emulator.each_instead() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF emulator.changes_itself(TG_RELID) THEN
        IF TG_OP = 'DELETE' THEN
            RETURN OLD;
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        EXECUTE format('INSERT INTO pg_temp.%I SELECT ($1).*', emulator.image_name(TG_RELID, TG_OP, 'inserted')) USING NEW;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        EXECUTE format('INSERT INTO pg_temp.%I SELECT ($1).*', emulator.image_name(TG_RELID, TG_OP, 'deleted')) USING OLD;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION emulator.after_instead() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NOT emulator.changes_itself(TG_RELID) THEN
        PERFORM emulator.tell_change(TG_RELID, TG_OP, true);
    END IF;
    RETURN NULL;
END $$;

-- Sequences are PostgreSQL's own; an object's id is the sequence's oid. Numbers are those of the declaration.
CREATE TABLE IF NOT EXISTS emulator.sequences (
    object_id int PRIMARY KEY REFERENCES emulator.objects ON DELETE CASCADE,
    type_name varchar(32) NOT NULL,
    precision smallint NOT NULL DEFAULT 0,
    start_value numeric(38) NOT NULL,
    increment numeric(38) NOT NULL,
    minimum_value numeric(38) NOT NULL,
    maximum_value numeric(38) NOT NULL,
    is_cycling boolean NOT NULL,
    cache_size int
);
