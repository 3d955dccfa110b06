-- Numbers: from strings, between number types, to strings; mathematical functions.

-- Strings to numbers --------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.parse_integer(value text, target text, low bigint, high bigint, source text)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE number numeric;
BEGIN
    IF value ~ '^\s*$' THEN RETURN 0; END IF;
    IF value !~ '^\s*[+-]?\s*\d+\s*$' THEN
        IF target = 'bigint' THEN PERFORM tsql.fail(8114, format('Error converting data type %s to bigint.', source), value, 16, 5); END IF;
        PERFORM tsql.fail(245, format('Conversion failed when converting the %s value ''%%s'' to data type %s.', source, target), value);
    END IF;
    number := regexp_replace(value, '\s', '', 'g')::numeric;
    IF number BETWEEN low AND high THEN RETURN number::bigint; END IF;
    IF target = 'bigint' THEN PERFORM tsql.fail(8115, 'Arithmetic overflow error converting expression to data type bigint.', value); END IF;
    IF target = 'int' THEN PERFORM tsql.fail(248, format('The conversion of the %s value ''%%s'' overflowed an int column.', source), value); END IF;
    PERFORM tsql.fail(244, format('The conversion of the %s value ''%%s'' overflowed an %s column. Use a larger integer column.',
        source, CASE target WHEN 'tinyint' THEN 'INT1' ELSE 'INT2' END), value);
END $$;

CREATE OR REPLACE FUNCTION tsql.to_int(value text, source text) RETURNS int4 LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF value ~ '^[+-]?\d{1,9}$' THEN RETURN value::int4; END IF;
    RETURN tsql.parse_integer(value, 'int', -2147483648, 2147483647, source)::int4;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_bigint(value text, source text) RETURNS int8 LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF value ~ '^[+-]?\d{1,18}$' THEN RETURN value::int8; END IF;
    RETURN tsql.parse_integer(value, 'bigint', -9223372036854775808, 9223372036854775807, source);
END $$;
CREATE OR REPLACE FUNCTION tsql.to_smallint(value text, source text) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.parse_integer(value, 'smallint', -32768, 32767, source)::int2;
CREATE OR REPLACE FUNCTION tsql.to_tinyint(value text, source text) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.parse_integer(value, 'tinyint', 0, 255, source)::int2;
CREATE OR REPLACE FUNCTION tsql.to_bit(value text, source text) RETURNS int2 LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    CASE lower(btrim(value)) WHEN 'true' THEN RETURN 1; WHEN 'false' THEN RETURN 0; WHEN '1' THEN RETURN 1; WHEN '0' THEN RETURN 0; ELSE
        IF value !~ '^\s*([+-]?\d+)?\s*$' THEN
            PERFORM tsql.fail(245, format('Conversion failed when converting the %s value ''%%s'' to data type bit.', source), value);
        END IF;
        RETURN (value ~ '[1-9]')::int::int2;
    END CASE;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_numeric(value text, digits int, scale int, source text) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE number numeric;
BEGIN
    IF value !~ '^\s*[+-]?(\d+\.?\d*|\.\d+)\s*$' THEN
        PERFORM tsql.fail(8114, format('Error converting data type %s to numeric.', source), value, 16, 5);
    END IF;
    number := round(value::numeric, scale);
    IF abs(number) >= 10::numeric ^ (digits - scale) THEN
        PERFORM tsql.fail(8115, format('Arithmetic overflow error converting %s to data type numeric.', source), value, 16, 6);
    END IF;
    RETURN number;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_money(value text, source text) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE plain text := regexp_replace(value, '[\s,$£€¥]', '', 'g');
BEGIN
    IF plain = '' THEN RETURN 0; END IF;
    IF plain !~ '^[+-]?(\d+\.?\d*|\.\d+)$' THEN
        PERFORM tsql.fail(235, 'Cannot convert a char value to money. The char value has incorrect syntax.', value);
    END IF;
    RETURN round(plain::numeric, 4);
END $$;
CREATE OR REPLACE FUNCTION tsql.to_float(value text, source text) RETURNS float8 LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF value ~ '^\s*$' THEN RETURN 0; END IF;
    IF value !~ '^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$' OR NOT pg_input_is_valid(value, 'float8') THEN
        PERFORM tsql.fail(8114, format('Error converting data type %s to float.', source), value, 16, 5);
    END IF;
    RETURN value::float8;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_real(value text, source text) RETURNS float4 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.to_float(value, source)::float4;
CREATE OR REPLACE FUNCTION tsql.read_uniqueidentifier(value text) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE plain text := left(ltrim(value, '{'), 36);
BEGIN
    IF plain !~ '^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$' THEN
        PERFORM tsql.fail(8169, 'Conversion failed when converting from a character string to uniqueidentifier.', value);
    END IF;
    RETURN plain::uuid;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_uniqueidentifier(value text, source text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value ~ '^[0-9A-Fa-f]{8}-[0-9A-Fa-f-]{27}$' AND pg_input_is_valid(value, 'uuid')
        THEN value::uuid ELSE tsql.read_uniqueidentifier(value) END $$;

-- TRY_CAST and TRY_CONVERT: NULL where the plain conversion fails.
DO $$
DECLARE target record;
BEGIN
    FOR target IN SELECT * FROM (VALUES ('int', 'int4'), ('bigint', 'int8'), ('smallint', 'int2'), ('tinyint', 'int2'), ('bit', 'int2'),
                                        ('money', 'numeric'), ('float', 'float8'), ('real', 'float4'), ('uniqueidentifier', 'uuid')) AS t(name, result)
    LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION tsql.try_to_%1$s(value text) RETURNS %2$s LANGUAGE plpgsql IMMUTABLE STRICT AS '
            '$f$ BEGIN RETURN tsql.to_%1$s(value, ''varchar''); EXCEPTION WHEN OTHERS THEN RETURN NULL; END $f$', target.name, target.result);
    END LOOP;
END $$;
CREATE OR REPLACE FUNCTION tsql.try_to_numeric(value text, digits int, scale int) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN RETURN tsql.to_numeric(value, digits, scale, 'varchar'); EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$;

-- Numbers -------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.bit(value numeric) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value = 0 THEN 0 ELSE 1 END::int2;
CREATE OR REPLACE FUNCTION tsql.bit(value int4) RETURNS int2 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value = 0 THEN 0 WHEN value IS NULL THEN NULL ELSE 1 END::int2;
CREATE OR REPLACE FUNCTION tsql.bit(value float8) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value = 0 THEN 0 ELSE 1 END::int2;
CREATE OR REPLACE FUNCTION tsql.tinyint(value numeric) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value BETWEEN 0 AND 255 THEN value::int2
    ELSE tsql.fail(220, 'Arithmetic overflow error for data type tinyint, value = %s.', value::text, 16, 2)::int2 END;
CREATE OR REPLACE FUNCTION tsql.tinyint(value float8) RETURNS int2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.tinyint(value::numeric);
CREATE OR REPLACE FUNCTION tsql.tinyint(value int4) RETURNS int2 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value BETWEEN 0 AND 255 OR value IS NULL THEN value::int2
    ELSE tsql.fail(220, 'Arithmetic overflow error for data type tinyint, value = %s.', value::text, 16, 2)::int2 END;
-- The result of an operator over tinyints.
CREATE OR REPLACE FUNCTION tsql.tinyint_result(value int2) RETURNS int2 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value BETWEEN 0 AND 255 OR value IS NULL THEN value
    ELSE tsql.fail(8115, 'Arithmetic overflow error converting expression to data type tinyint.', value::text, 16, 2)::int2 END;
CREATE OR REPLACE FUNCTION tsql.smallint(value bigint) RETURNS int2 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value BETWEEN -32768 AND 32767 OR value IS NULL THEN value::int2
    ELSE tsql.fail(220, 'Arithmetic overflow error for data type smallint, value = %s.', value::text)::int2 END;
CREATE OR REPLACE FUNCTION tsql.float_overflow(value float8, target text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN tsql.fail(232, 'Arithmetic overflow error for type ' || target || ', value = %s.', to_char(value::numeric, 'FM999999999999999999999999999999999999990.000000'), 16, 3);
CREATE OR REPLACE FUNCTION tsql.float_to_int(value float8) RETURNS int4 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value >= -2147483648 AND value <= 2147483647 OR value IS NULL THEN value::int4 ELSE tsql.float_overflow(value, 'int')::int4 END;
CREATE OR REPLACE FUNCTION tsql.float_to_bigint(value float8) RETURNS int8 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value >= -9223372036854775808 AND value < 9223372036854775808 OR value IS NULL THEN value::int8 ELSE tsql.float_overflow(value, 'bigint')::int8 END;
CREATE OR REPLACE FUNCTION tsql.float_to_smallint(value float8) RETURNS int2 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value >= -32768 AND value <= 32767 OR value IS NULL THEN value::int2 ELSE tsql.float_overflow(value, 'smallint')::int2 END;
CREATE OR REPLACE FUNCTION tsql.float_to_tinyint(value float8) RETURNS int2 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value >= 0 AND value <= 255 OR value IS NULL THEN value::int2 ELSE tsql.float_overflow(value, 'tinyint')::int2 END;
CREATE OR REPLACE FUNCTION tsql.money(value numeric) RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value BETWEEN -922337203685477.5808 AND 922337203685477.5807 OR value IS NULL THEN value::numeric(19,4)
    ELSE tsql.fail(8115, 'Arithmetic overflow error converting expression to data type money.', value::text, 16, 2)::numeric END;
CREATE OR REPLACE FUNCTION tsql.smallmoney(value numeric) RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value BETWEEN -214748.3648 AND 214748.3647 OR value IS NULL THEN value::numeric(10,4)
    ELSE tsql.fail(8115, 'Arithmetic overflow error converting expression to data type smallmoney.', value::text, 16, 2)::numeric END;
CREATE OR REPLACE FUNCTION tsql.round(value numeric, digits int, cut int) RETURNS numeric LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN cut = 0 THEN pg_catalog.round(value, digits) ELSE pg_catalog.trunc(value, digits) END;
CREATE OR REPLACE FUNCTION tsql.rand(seed int) RETURNS float8 LANGUAGE sql VOLATILE AS $$
    SELECT setseed(((coalesce(seed, 0) % 1000003) / 1000003.0)::float8); SELECT random() $$;
CREATE OR REPLACE FUNCTION tsql.checksum(parts text[]) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtext(array_to_string(parts, E'\x01', E'\x02'));
CREATE OR REPLACE FUNCTION tsql.xor(a int, b int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN b IS NULL THEN a WHEN a IS NULL THEN b ELSE a # b END;
CREATE OR REPLACE AGGREGATE tsql.checksum_agg(int) (SFUNC = tsql.xor, STYPE = int);
CREATE OR REPLACE FUNCTION tsql.smaller(a uuid, b uuid) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN least(a, b);
CREATE OR REPLACE FUNCTION tsql.larger(a uuid, b uuid) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN greatest(a, b);
CREATE OR REPLACE AGGREGATE tsql.min(uuid) (SFUNC = tsql.smaller, STYPE = uuid);
CREATE OR REPLACE AGGREGATE tsql.max(uuid) (SFUNC = tsql.larger, STYPE = uuid);
CREATE OR REPLACE FUNCTION tsql.smaller(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS tsql.datetimeoffset
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN CASE WHEN (b).utc < (a).utc THEN b ELSE a END;
CREATE OR REPLACE FUNCTION tsql.larger(a tsql.datetimeoffset, b tsql.datetimeoffset) RETURNS tsql.datetimeoffset
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN CASE WHEN (b).utc > (a).utc THEN b ELSE a END;
CREATE OR REPLACE AGGREGATE tsql.min(tsql.datetimeoffset) (SFUNC = tsql.smaller, STYPE = tsql.datetimeoffset);
CREATE OR REPLACE AGGREGATE tsql.max(tsql.datetimeoffset) (SFUNC = tsql.larger, STYPE = tsql.datetimeoffset);
CREATE OR REPLACE FUNCTION tsql.isnumeric(value text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(value ~ '^\s*([+-]?\s*[$£€¥]?|[$£€¥]\s*[+-]?)\s*(\d[\d,]*\.?\d*|\.\d+)([eEdD][+-]?\d+)?\s*$' OR value ~ '^\s*[-+.,$£€¥]\s*$', false)::int;

-- Bits moved to the left (to the right by a negative distance) within a number of so many bits.
CREATE OR REPLACE FUNCTION tsql.shift(value bigint, distance int, bits int) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN bits = 64 THEN moved::bigint WHEN bits = 8 THEN moved::bit(64)::bigint & 255
        ELSE (((moved & (1::numeric * 2 ^ bits - 1)::bigint) + (2 ^ (bits - 1))::bigint) & ((2 ^ bits)::bigint - 1)) - (2 ^ (bits - 1))::bigint END
    FROM (SELECT CASE WHEN abs(distance) >= bits THEN 0::bigint WHEN distance >= 0 THEN value << distance
        ELSE (CASE WHEN bits = 64 THEN value ELSE value & ((2 ^ bits)::bigint - 1) END >> -distance)
            & CASE WHEN bits = 64 THEN (9223372036854775807 >> (-distance - 1)) ELSE -1 END END AS moved) m $$;
CREATE OR REPLACE FUNCTION tsql.percent(value float8) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value BETWEEN 0 AND 100 THEN value ELSE tsql.fail(1031, 'Percent values must be between 0 and 100.', value::text)::float8 END;

-- Numbers to strings --------------------------------------------------------------------------------------------------

-- Style 0 is C's %.6g with an exponent of three digits; 1 and 2 are scientific; 3 is exact.
CREATE OR REPLACE FUNCTION tsql.float_to_text(value float8, style int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    digits int := CASE style WHEN 0 THEN 6 WHEN 1 THEN 8 WHEN 2 THEN 16 ELSE 17 END;
    exponent int;
    mantissa numeric;
    plain text;
BEGIN
    IF style = 3 THEN RETURN value::text; END IF;
    IF value = 0 THEN exponent := 0; mantissa := 0;
    ELSE
        exponent := floor(log(abs(value)::numeric));
        mantissa := pg_catalog.round(value::numeric / 10::numeric ^ exponent, digits - 1);
        IF abs(mantissa) >= 10 THEN exponent := exponent + 1; mantissa := mantissa / 10; END IF;
    END IF;
    IF style = 0 AND exponent BETWEEN -4 AND 5 THEN
        plain := pg_catalog.round(value::numeric, greatest(digits - 1 - exponent, 0))::text;
        RETURN CASE WHEN strpos(plain, '.') > 0 THEN rtrim(rtrim(plain, '0'), '.') ELSE plain END;
    END IF;
    plain := CASE WHEN style = 0 THEN rtrim(rtrim(mantissa::text, '0'), '.') ELSE pg_catalog.round(mantissa, digits - 1)::text END;
    RETURN plain || 'e' || CASE WHEN exponent < 0 THEN '-' ELSE '+' END || lpad(abs(exponent)::text, 3, '0');
END $$;
CREATE OR REPLACE FUNCTION tsql.money_to_text(value numeric, style int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN style = 1 THEN ltrim(to_char(pg_catalog.round(value, 2), 'FM999,999,999,999,990.00'))
    ELSE pg_catalog.round(value, CASE WHEN style IN (2, 126) THEN 4 ELSE 2 END)::text END;
CREATE OR REPLACE FUNCTION tsql.str(value float8, length int, decimals int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN char_length(whole) > length THEN repeat('*', length)
           ELSE lpad(CASE WHEN char_length(full_text) > length
                THEN pg_catalog.round(value::numeric, greatest(length - char_length(whole) - 1, 0))::text ELSE full_text END, length) END
    FROM (SELECT pg_catalog.round(value::numeric, 0)::text AS whole,
                 pg_catalog.round(value::numeric, least(decimals, 16))::text AS full_text) v $$;

-- A number's or uniqueidentifier's text that must not be cut: an integer shows * in a (var)char that is too short for it.
CREATE OR REPLACE FUNCTION tsql.whole_text(value text, length int, kind text, target text, is_try boolean) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value IS NULL OR char_length(value) <= length THEN value
    WHEN kind = 'integer' AND target IN ('char', 'varchar') THEN '*'
    WHEN is_try THEN NULL
    WHEN kind IN ('integer', 'bigint') THEN tsql.fail(8115, format('Arithmetic overflow error converting expression to data type %s.', target), value, 16, 2)
    WHEN kind = 'decimal' THEN tsql.fail(8115, format('Arithmetic overflow error converting numeric to data type %s.', target), value, 16, 5)
    WHEN kind = 'money' THEN tsql.fail(234, format('There is insufficient result space to convert a money value to %s.', target), value, 16, 2)
    WHEN kind = 'guid' THEN tsql.fail(8170, 'Insufficient result space to convert uniqueidentifier value to char.', value, 16, 2)
    ELSE tsql.fail(232, format('Arithmetic overflow error for type %s, value = %%s.', target), value, 16, 2) END;
