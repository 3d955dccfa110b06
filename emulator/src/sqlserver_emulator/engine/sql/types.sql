-- The system types as functions. A name after a colon is filled in from the records (``type_library``).
-- of_type: what system_types says of the type. Without a query in them, PostgreSQL writes these functions out where
-- they are called: that is 20 times as fast.

CREATE OR REPLACE FUNCTION emulator.system_types() RETURNS TABLE (
    tsql_name text, name text, system_type_id int, user_type_id int, max_length int, "precision" int, scale int)
LANGUAGE sql IMMUTABLE AS $$
    VALUES :system_types
$$;

CREATE OR REPLACE FUNCTION emulator.type_max_length(type_name text, length int, digits int, scale int, of_type smallint)
RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE
        WHEN type_name IN (:wide_types) THEN CASE WHEN length < 0 THEN -1 ELSE length * 2 END
        WHEN type_name IN (:narrow_types) THEN length
        WHEN type_name IN (:decimal_types) THEN
            CASE WHEN digits < 10 THEN 5 WHEN digits < 20 THEN 9 WHEN digits < 29 THEN 13 ELSE 17 END
        WHEN type_name IN (:fraction_types) THEN
            CASE WHEN scale < 3 THEN 3 WHEN scale < 5 THEN 4 ELSE 5 END + CASE type_name :bytes_after_time END
        ELSE of_type END)::smallint
$$;

CREATE OR REPLACE FUNCTION emulator.type_precision(type_name text, digits int, scale int, of_type smallint)
RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE
        WHEN type_name IN (:decimal_types) THEN digits
        WHEN type_name IN (:fraction_types) THEN CASE type_name :text_widths END + scale + (scale > 0)::int
        ELSE of_type END)::smallint
$$;

CREATE OR REPLACE FUNCTION emulator.type_scale(type_name text, scale int, of_type smallint) RETURNS smallint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE WHEN type_name IN (:decimal_types, :fraction_types) THEN scale ELSE of_type END)::smallint
$$;

CREATE OR REPLACE FUNCTION emulator.is_character_type(type_name text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT type_name IN (:character_types)
$$;

-- NULL for what is no number; bit is none.
CREATE OR REPLACE FUNCTION emulator.number_radix(type_name text) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE WHEN type_name IN (:float_types) THEN 2 WHEN type_name IN (:exact_types) THEN 10 END)::smallint
$$;

-- Digits of a second's fraction; NULL for what is no date or time.
CREATE OR REPLACE FUNCTION emulator.fraction_digits(type_name text, scale int) RETURNS smallint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE WHEN type_name IN (:fraction_types) THEN scale ELSE CASE type_name :set_fractions END END)::smallint
$$;

-- The collations that there are: fn_helpcollations and COLLATIONPROPERTY.
CREATE OR REPLACE FUNCTION emulator.collations() RETURNS TABLE (
    name text, comparison_style int, version int, description text)
LANGUAGE sql IMMUTABLE AS $$
    SELECT * FROM (VALUES :collations) AS c
$$;

CREATE OR REPLACE FUNCTION emulator.server_collation() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT :server_collation $$;
