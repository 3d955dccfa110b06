-- Dates and times: reading, rounding, offsets, arithmetic, parts.

-- Dates: reading ------------------------------------------------------------------------------------------------------

-- A string as a date and time by CONVERT's style, NULL when it is none. The seventh digit of a second is
-- not in it (``parse_datetime2``).
CREATE OR REPLACE FUNCTION tsql.parse_timestamp(value text, style int) RETURNS timestamp LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
    plain text := btrim(value);
    parts text[];
BEGIN
    IF plain ~ '^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?$' THEN
        RETURN CASE WHEN pg_input_is_valid(plain, 'timestamp') THEN plain::timestamp END;
    END IF;
    IF plain = '' THEN RETURN timestamp '1900-01-01'; END IF;
    IF plain !~ '\d' OR plain ~* '(infinity|bc\M)' THEN RETURN NULL; END IF;
    -- Fields of a time may have one digit, and blanks may be before the fraction of a second.
    plain := regexp_replace(plain, '(\d{1,2}:\d{1,2}:\d{1,2})\.\s+(\d)', '\1.\2');
    IF plain ~ ':\d(?!\d)' THEN plain := regexp_replace(plain, '(?<=\d):(\d)(?=[:. ]|$)', ':0\1', 'g'); END IF;
    plain := regexp_replace(plain, '(\.\d{6})\d+', '\1');
    -- Behind a colon stand thousandths of a second.
    plain := regexp_replace(plain, '(\d:\d\d:\d\d):(\d{3})(?=\s*([AP]M)?$)', '\1.\2', 'i');
    plain := regexp_replace(plain, '(\d:\d\d:\d\d):(\d{2})(?=\s*([AP]M)?$)', '\1.0\2', 'i');
    plain := regexp_replace(plain, '(\d:\d\d:\d\d):(\d)(?=\s*([AP]M)?$)', '\1.00\2', 'i');
    plain := regexp_replace(plain, '(\d)\s*([AP]M)$', '\1 \2', 'i');
    plain := regexp_replace(plain, '(Z|\s*[+-]\d\d:\d\d)$', '');
    IF plain ~* '^\d{1,2}(:\d\d){0,2}(\.\d+)?( [AP]M)?$' AND plain ~ '[:AaPp]' THEN
        IF plain !~ ':' THEN plain := regexp_replace(plain, '^(\d+)', '\1:00'); END IF;
        RETURN CASE WHEN pg_input_is_valid(plain, 'time') THEN date '1900-01-01' + plain::time END;
    END IF;
    IF style = 0 AND plain !~ '^(\d{4}|\d{6}$)' AND coalesce(current_setting('emulator.date_format', true), '') = 'ymd' THEN
        parts := regexp_match(plain, '^(\d\d)[-/.](\d{1,2})[-/.](\d{1,2})(\s.*)?$');
        -- The name of a month with four digits of a year says enough.
        IF parts IS NULL AND (plain ~ '^\d{1,2}\s*[-/.]' OR (plain !~ '\d{4}' AND plain ~* '(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)')) THEN
            PERFORM tsql.fail(49999, 'sqlserver_emulator does not support dates like this under SET DATEFORMAT ymd. See docs/emulator.md.', value);
        END IF;
        IF parts IS NOT NULL THEN plain := format('%s/%s/%s%s', parts[2], parts[3], parts[1], coalesce(parts[4], '')); END IF;
    END IF;
    parts := regexp_match(plain, '^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d{2})(\s.*)?$');
    IF parts IS NOT NULL THEN
        IF length(parts[3]) = 2 THEN parts[3] := CASE WHEN parts[3] < '50' THEN '20' ELSE '19' END || parts[3]; END IF;
        IF style % 100 IN (3, 4, 5, 13) THEN parts := ARRAY[parts[2], parts[1], parts[3], parts[4]]; END IF;
        plain := format('%s-%s-%s%s', parts[3], lpad(parts[1], 2, '0'), lpad(parts[2], 2, '0'), coalesce(parts[4], ''));
    ELSIF plain ~ '^\d{4}$' THEN plain := plain || '-01-01';
    ELSIF plain ~ '^\d{6}$' THEN
        plain := CASE WHEN plain < '50' THEN '20' ELSE '19' END || plain;
    ELSE plain := regexp_replace(plain, '^(\d{4})[/.](\d{1,2})[/.](\d{1,2})', '\1-\2-\3');
    END IF;
    RETURN CASE WHEN pg_input_is_valid(plain, 'timestamp') THEN plain::timestamp END;
END $$;

CREATE OR REPLACE FUNCTION tsql.with_digit(value timestamp, digit text) RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.datetime2_of(tsql.ticks(value) + digit::bigint);
-- Digits beyond the seventh are cut.
CREATE OR REPLACE FUNCTION tsql.parse_datetime2(value text, style int) RETURNS tsql.datetime2 LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN tsql.with_digit(tsql.parse_timestamp(value, style), coalesce(substring(value FROM '\.\d{6}(\d)'), '0'));

CREATE OR REPLACE FUNCTION tsql.fail_date(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN tsql.fail(241, 'Conversion failed when converting date and/or time from character string.', value);
-- The usual form of a date is read in place (the functions below are inlined); the rest goes to parse_timestamp.
CREATE OR REPLACE FUNCTION tsql.read_datetime2(value text, style int) RETURNS tsql.datetime2 LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE moment tsql.datetime2 := tsql.parse_datetime2(value, style);
BEGIN
    IF moment IS NULL THEN PERFORM tsql.fail_date(value); END IF;
    RETURN moment;
END $$;
CREATE OR REPLACE FUNCTION tsql.to_datetime2(value text, style int) RETURNS tsql.datetime2 LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value ~ '^\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,7})?)?$' AND pg_input_is_valid(value, 'timestamp')
        THEN tsql.with_digit(pg_catalog.left(value, 26)::timestamp, '0' || pg_catalog.substr(value, 27)) ELSE tsql.read_datetime2(value, style) END $$;
CREATE OR REPLACE FUNCTION tsql.to_date(value text, style int) RETURNS date LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value ~ '^\d{4}-\d\d-\d\d$' AND pg_input_is_valid(value, 'date')
        THEN value::date ELSE tsql.read_datetime2(value, style)::date END $$;
CREATE OR REPLACE FUNCTION tsql.to_time(value text, style int) RETURNS tsql.time LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN value ~ '^\d\d:\d\d:\d\d(\.\d{1,7})?$' AND pg_input_is_valid(value, 'time')
        THEN tsql.time_of(tsql.ticks(pg_catalog.left(value, 15)::time) + ('0' || pg_catalog.substr(value, 16))::bigint)
        ELSE tsql.time_of_day(tsql.read_datetime2(value, style)) END $$;
CREATE OR REPLACE FUNCTION tsql.to_datetime(value text, style int) RETURNS timestamp LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE moment timestamp := tsql.parse_timestamp(value, style);
BEGIN
    -- The old types know three digits of a second and no offset. What has a date's form but no date's value is out of range.
    IF value ~ '(\.\d{4,}|\d\s*[+-]\d\d:\d\d\s*$)' OR (moment IS NULL AND value !~ '^\s*(\d{4}-\d{1,2}-\d{1,2}|\d{8}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\y') THEN
        PERFORM tsql.fail_date(value);
    END IF;
    IF moment IS NULL OR moment < timestamp '1753-01-01' THEN PERFORM tsql.out_of_range('varchar', 'datetime', moment); END IF;
    RETURN tsql.round_datetime(moment);
END $$;
CREATE OR REPLACE FUNCTION tsql.to_smalldatetime(value text, style int) RETURNS timestamp LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT tsql.checked_smalldatetime(tsql.round_smalldatetime(tsql.to_datetime(value, style)), 'varchar', false) $$;
CREATE OR REPLACE FUNCTION tsql.to_datetimeoffset(value text, style int) RETURNS tsql.datetimeoffset
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE parts text[] := regexp_match(value, '^(.*\S)\s*([+-]\d\d:\d\d|Z)\s*$');
BEGIN
    IF parts IS NULL THEN RETURN tsql.datetimeoffset(tsql.to_datetime2(value, style), 0); END IF;
    -- A moment whose UTC is not in the years 1 to 9999 is no value of the type.
    IF NOT tsql.is_moment(tsql.datetimeoffset(tsql.to_datetime2(parts[1], style), tsql.offset_from_text(parts[2]))) THEN PERFORM tsql.fail_date(value); END IF;
    RETURN tsql.datetimeoffset(tsql.to_datetime2(parts[1], style), tsql.offset_from_text(parts[2]));
END $$;
DO $$
DECLARE target record;
BEGIN
    FOR target IN SELECT * FROM (VALUES ('datetime2', 'tsql.datetime2'), ('datetime', 'timestamp'), ('smalldatetime', 'timestamp'), ('date', 'date'),
                                        ('time', 'tsql.time'), ('datetimeoffset', 'tsql.datetimeoffset')) AS t(name, result)
    LOOP
        -- A refusal is no conversion that failed.
        EXECUTE format('CREATE OR REPLACE FUNCTION tsql.try_to_%1$s(value text, style int) RETURNS %2$s LANGUAGE plpgsql STABLE STRICT AS '
            '$f$ BEGIN RETURN tsql.to_%1$s(value, style); EXCEPTION WHEN OTHERS THEN IF SQLERRM LIKE ''sqlserver_emulator %%'' THEN RAISE; END IF; RETURN NULL; END $f$', target.name, target.result);
        -- For stored expressions whose style is one that depends on no setting (``ddl/tables/table_sql.py``).
        EXECUTE format('CREATE OR REPLACE FUNCTION tsql.fixed_to_%1$s(value text, style int) RETURNS %2$s LANGUAGE plpgsql IMMUTABLE STRICT AS '
            '$f$ BEGIN RETURN tsql.to_%1$s(value, style); END $f$', target.name, target.result);
        EXECUTE format('CREATE OR REPLACE FUNCTION tsql.fixed_try_to_%1$s(value text, style int) RETURNS %2$s LANGUAGE plpgsql IMMUTABLE STRICT AS '
            '$f$ BEGIN RETURN tsql.try_to_%1$s(value, style); END $f$', target.name, target.result);
    END LOOP;
END $$;
CREATE OR REPLACE FUNCTION tsql.isdate(value text) RETURNS int LANGUAGE sql STABLE PARALLEL SAFE
RETURN (tsql.try_to_datetime(value, 0) IS NOT NULL)::int;

-- Dates: rounding and numbers -----------------------------------------------------------------------------------------

-- datetime counts in ticks of 1/300 second, shown as 0, 3 or 7 milliseconds.
CREATE OR REPLACE FUNCTION tsql.round_datetime(value timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN date_trunc('minute', value)
    + pg_catalog.round(pg_catalog.round(extract(microseconds FROM value) * 3 / 10000) * 10 / 3) * interval '1 millisecond';
-- 300 ticks of datetime are 10,000,000 of datetime2.
CREATE OR REPLACE FUNCTION tsql.round_datetime(value tsql.datetime2) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN date_trunc('minute', tsql.cut(value))
    + pg_catalog.round(pg_catalog.round(tsql.ticks(value) % 600000000 * 3 / 100000.0) * 10 / 3) * interval '1 millisecond';
CREATE OR REPLACE FUNCTION tsql.round_smalldatetime(value timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN date_trunc('minute', value + interval '30 seconds 1 microsecond' - interval '1 microsecond');
CREATE OR REPLACE FUNCTION tsql.round_smalldatetime(value tsql.datetime2) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.round_smalldatetime(tsql.cut(value));
CREATE OR REPLACE FUNCTION tsql.out_of_range(source text, target text, value timestamp) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN tsql.fail(242, format('The conversion of a %s data type to a %s data type resulted in an out-of-range value.', source, target), value::text, 16, 3);
CREATE OR REPLACE FUNCTION tsql.checked_datetime(value timestamp, source text, is_try boolean) RETURNS timestamp LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value >= timestamp '1753-01-01' OR value IS NULL THEN value WHEN NOT is_try THEN tsql.out_of_range(source, 'datetime', value)::timestamp END;
CREATE OR REPLACE FUNCTION tsql.checked_smalldatetime(value timestamp, source text, is_try boolean) RETURNS timestamp LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value BETWEEN timestamp '1900-01-01' AND timestamp '2079-06-06 23:59' OR value IS NULL THEN value
    WHEN NOT is_try THEN tsql.out_of_range(source, 'smalldatetime', value)::timestamp END;
CREATE OR REPLACE FUNCTION tsql.datetime_to_float(value timestamp) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (extract(epoch FROM value - timestamp '1900-01-01') / 86400)::float8;
CREATE OR REPLACE FUNCTION tsql.float_to_datetime(value float8) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.round_datetime(timestamp '1900-01-01' + value * interval '1 day');

-- Dates: datetimeoffset -----------------------------------------------------------------------------------------------

-- In SQL it would not be inlined, as a row is not NULL for a NULL, and would cost several times as much.
CREATE OR REPLACE FUNCTION tsql.datetimeoffset(local tsql.datetime2, minutes int) RETURNS tsql.datetimeoffset
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN ROW(tsql.datetime2_of(tsql.ticks(local) - minutes * 600000000::bigint), minutes)::tsql.datetimeoffset;
END $$;
CREATE OR REPLACE FUNCTION tsql.local_time(value tsql.datetimeoffset) RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN tsql.datetime2_of(tsql.ticks((value).utc) + (value).offset_minutes * 600000000::bigint);
CREATE OR REPLACE FUNCTION tsql.utc_time(value tsql.datetimeoffset) RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (value).utc;
CREATE OR REPLACE FUNCTION tsql.offset_minutes(value tsql.datetimeoffset) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (value).offset_minutes::int;
CREATE OR REPLACE FUNCTION tsql.switchoffset(value tsql.datetimeoffset, minutes int) RETURNS tsql.datetimeoffset LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ROW((value).utc, minutes)::tsql.datetimeoffset;
CREATE OR REPLACE FUNCTION tsql.round_datetimeoffset(value tsql.datetimeoffset, digits int) RETURNS tsql.datetimeoffset
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ROW(tsql.datetime2_of(tsql.round_ticks(tsql.ticks((value).utc), digits)), (value).offset_minutes)::tsql.datetimeoffset;
CREATE OR REPLACE FUNCTION tsql.offset_from_text(value text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN value = 'Z' THEN 0 WHEN value ~ '^[+-]\d\d:\d\d$'
    THEN (pg_catalog.substr(value, 2, 2)::int * 60 + pg_catalog.substr(value, 5, 2)::int) * CASE WHEN value LIKE '-%' THEN -1 ELSE 1 END
    ELSE tsql.fail(9812, 'The timezone provided to builtin function todatetimeoffset is invalid.', value)::int END;
CREATE OR REPLACE FUNCTION tsql.offset_text(minutes int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN minutes < 0 THEN '-' ELSE '+' END || lpad((abs(minutes) / 60)::text, 2, '0') || ':' || lpad((abs(minutes) % 60)::text, 2, '0');
-- PostgreSQL's clock has six digits, the server's seven: the seventh comes from the others, so that two moments keep
-- their order and a value read twice is the same.
CREATE OR REPLACE FUNCTION tsql.precise_time(value timestamp) RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.datetime2_of(tsql.ticks(value) + abs(tsql.microseconds(value) / 7 % 10));
CREATE OR REPLACE FUNCTION tsql.sysdatetimeoffset() RETURNS tsql.datetimeoffset LANGUAGE sql STABLE PARALLEL SAFE
RETURN ROW(tsql.precise_time(emulator.utc_now()), extract(timezone FROM statement_timestamp()) / 60)::tsql.datetimeoffset;
CREATE OR REPLACE FUNCTION tsql.zone_offset(utc timestamp, zone text) RETURNS int LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
BEGIN
    -- PostgreSQL takes a number for a zone, of any hours.
    IF zone ~ '^\W*\d' THEN RAISE invalid_parameter_value; END IF;
    RETURN extract(epoch FROM (utc AT TIME ZONE 'UTC') AT TIME ZONE tsql.zone(zone) - utc)::int / 60;
EXCEPTION WHEN invalid_parameter_value THEN
    PERFORM tsql.fail(9820, 'The time zone parameter ''%s'' provided to AT TIME ZONE clause is invalid.', zone);
END $$;
CREATE OR REPLACE FUNCTION tsql.move_to_zone(value tsql.datetimeoffset, zone text) RETURNS tsql.datetimeoffset LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN ROW((value).utc, tsql.zone_offset(tsql.cut((value).utc), zone))::tsql.datetimeoffset;
CREATE OR REPLACE FUNCTION tsql.in_zone(local tsql.datetime2, zone text) RETURNS tsql.datetimeoffset LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
    coarse timestamp := tsql.cut(local);
    utc timestamp;
BEGIN
    PERFORM tsql.zone_offset(coarse, zone);
    utc := (coarse AT TIME ZONE tsql.zone(zone)) AT TIME ZONE 'UTC';
    RETURN tsql.datetimeoffset(local, extract(epoch FROM coarse - utc)::int / 60);
END $$;
CREATE OR REPLACE FUNCTION tsql.current_timezone_id() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN current_setting('TimeZone') IN ('UTC', 'Etc/UTC', 'GMT') THEN 'UTC' ELSE current_setting('TimeZone') END;
CREATE OR REPLACE FUNCTION tsql.current_timezone() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN '(UTC' || CASE WHEN extract(timezone FROM now()) = 0 THEN '' ELSE tsql.offset_text((extract(timezone FROM now()) / 60)::int) END || ') '
    || CASE WHEN tsql.current_timezone_id() = 'UTC' THEN 'Coordinated Universal Time' ELSE tsql.current_timezone_id() END;

-- Dates: arithmetic and parts -----------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.coarse_dateadd(part text, amount bigint, value timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part
    WHEN 'day' THEN value + amount * interval '1 day' WHEN 'dayofyear' THEN value + amount * interval '1 day'
    WHEN 'weekday' THEN value + amount * interval '1 day' WHEN 'week' THEN value + amount * interval '7 days'
    WHEN 'month' THEN value + amount * interval '1 month' WHEN 'quarter' THEN value + amount * interval '3 months'
    WHEN 'year' THEN value + amount * interval '1 year' WHEN 'hour' THEN value + amount * interval '1 hour'
    WHEN 'minute' THEN value + amount * interval '1 minute' WHEN 'second' THEN value + amount * interval '1 second'
    WHEN 'millisecond' THEN value + amount * interval '1 millisecond' END;
-- Nanoseconds are rounded to hundreds.
CREATE OR REPLACE FUNCTION tsql.dateadd(part text, amount bigint, value tsql.datetime2) RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.datetime2_of(CASE part WHEN 'nanosecond' THEN tsql.ticks(value) + pg_catalog.round(amount / 100.0)::bigint
    WHEN 'microsecond' THEN tsql.ticks(value) + amount * 10
    ELSE tsql.ticks(tsql.coarse_dateadd(part, amount, tsql.cut(value))) + tsql.ticks(value) % 10 END);
-- DATEADD over a column's type. Out of the type's range is error 517.
CREATE OR REPLACE FUNCTION tsql.checked_dateadd(part text, amount bigint, value tsql.datetime2, type text) RETURNS tsql.datetime2
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE moment tsql.datetime2 := tsql.dateadd(part, amount, value);
BEGIN
    IF moment >= timestamp '10000-01-01' OR moment < timestamp '0001-01-01' OR type = 'datetime' AND moment < timestamp '1753-01-01'
        OR type = 'smalldatetime' AND NOT moment BETWEEN timestamp '1900-01-01' AND timestamp '2079-06-07' THEN
        RAISE datetime_field_overflow;
    END IF;
    RETURN moment;
EXCEPTION WHEN datetime_field_overflow OR numeric_value_out_of_range THEN
    PERFORM tsql.fail(517, format('Adding a value to a ''%s'' column caused an overflow.', type), '');
END $$;
CREATE OR REPLACE FUNCTION tsql.dateadd_offset(part text, amount bigint, value tsql.datetimeoffset) RETURNS tsql.datetimeoffset
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN tsql.datetimeoffset(tsql.checked_dateadd(part, amount, tsql.local_time(value), 'datetimeoffset'), (value).offset_minutes);
-- DATEDIFF counts boundaries crossed; weeks begin on Sunday whatever DATEFIRST is.
CREATE OR REPLACE FUNCTION tsql.unit_number(part text, value timestamp) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part
    WHEN 'day' THEN (value::date - date '1900-01-01')::bigint WHEN 'dayofyear' THEN (value::date - date '1900-01-01')::bigint
    WHEN 'weekday' THEN (value::date - date '1900-01-01')::bigint
    WHEN 'week' THEN floor((value::date - date '1899-12-31') / 7.0)::bigint
    WHEN 'iso_week' THEN floor((value::date - date '1899-12-31') / 7.0)::bigint
    WHEN 'month' THEN (extract(year FROM value) * 12 + extract(month FROM value))::bigint
    WHEN 'quarter' THEN (extract(year FROM value) * 4 + extract(quarter FROM value))::bigint
    WHEN 'year' THEN extract(year FROM value)::bigint
    WHEN 'hour' THEN floor(extract(epoch FROM value) / 3600)::bigint WHEN 'minute' THEN floor(extract(epoch FROM value) / 60)::bigint
    WHEN 'second' THEN floor(extract(epoch FROM value))::bigint WHEN 'millisecond' THEN floor(extract(epoch FROM value) * 1000)::bigint END;
CREATE OR REPLACE FUNCTION tsql.datediff(part text, first tsql.datetime2, last tsql.datetime2) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part WHEN 'nanosecond' THEN (tsql.ticks(last) - tsql.ticks(first)) * 100
    WHEN 'microsecond' THEN tsql.ticks(last) / 10 - tsql.ticks(first) / 10
    ELSE tsql.unit_number(part, tsql.cut(last)) - tsql.unit_number(part, tsql.cut(first)) END;
CREATE OR REPLACE FUNCTION tsql.datediff_int(part text, first tsql.datetime2, last tsql.datetime2) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN n BETWEEN -2147483648 AND 2147483647 THEN n::int ELSE tsql.fail(535, 'The datediff function resulted in an overflow. The number of dateparts separating two date/time instances is too large. Try to use datediff with a less precise datepart.', n::text)::int END
    FROM (SELECT tsql.datediff(part, first, last) AS n) d $$;
CREATE OR REPLACE FUNCTION tsql.coarse_datepart(part text, value timestamp) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part
    WHEN 'year' THEN extract(year FROM value) WHEN 'quarter' THEN extract(quarter FROM value) WHEN 'month' THEN extract(month FROM value)
    WHEN 'day' THEN extract(day FROM value) WHEN 'dayofyear' THEN extract(doy FROM value)
    WHEN 'weekday' THEN extract(dow FROM value) + 1 WHEN 'iso_week' THEN extract(week FROM value)
    WHEN 'week' THEN floor((extract(doy FROM value) - 1 + extract(dow FROM date_trunc('year', value))) / 7) + 1
    WHEN 'hour' THEN extract(hour FROM value) WHEN 'minute' THEN extract(minute FROM value)
    WHEN 'second' THEN floor(extract(second FROM value)) WHEN 'millisecond' THEN floor(mod(extract(microseconds FROM value), 1000000) / 1000)
    END::int;
CREATE OR REPLACE FUNCTION tsql.datepart(part text, value tsql.datetime2) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part WHEN 'nanosecond' THEN (tsql.ticks(value) % 10000000 * 100)::int
    WHEN 'microsecond' THEN (tsql.ticks(value) % 10000000 / 10)::int ELSE tsql.coarse_datepart(part, tsql.cut(value)) END;
CREATE OR REPLACE FUNCTION tsql.datename(part text, value tsql.datetime2) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part WHEN 'month' THEN to_char(tsql.cut(value), 'FMMonth') WHEN 'weekday' THEN to_char(tsql.cut(value), 'FMDay') ELSE tsql.datepart(part, value)::text END;
CREATE OR REPLACE FUNCTION tsql.coarse_datetrunc(part text, value timestamp) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE part WHEN 'dayofyear' THEN date_trunc('day', value) WHEN 'iso_week' THEN date_trunc('week', value)
    WHEN 'week' THEN date_trunc('day', value) - extract(dow FROM value) * interval '1 day'
    WHEN 'millisecond' THEN date_trunc('milliseconds', value) WHEN 'microsecond' THEN value ELSE date_trunc(part, value) END;
CREATE OR REPLACE FUNCTION tsql.datetrunc(part text, value tsql.datetime2) RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.coarse_datetrunc(part, tsql.cut(value));
CREATE OR REPLACE FUNCTION tsql.eomonth(value tsql.datetime2, months int) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (date_trunc('month', tsql.cut(value)) + (coalesce(months, 0) + 1) * interval '1 month' - interval '1 day')::date;
CREATE OR REPLACE FUNCTION tsql.made_date(year int, month int, day int) RETURNS date LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN RETURN make_date(year, month, day);
EXCEPTION WHEN datetime_field_overflow THEN
    PERFORM tsql.fail(289, 'Cannot construct data type date, some of the arguments have values which are not valid.', '');
END $$;
CREATE OR REPLACE FUNCTION tsql.datefromparts(year int, month int, day int) RETURNS date LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.made_date(year, month, day);
CREATE OR REPLACE FUNCTION tsql.timefromparts(hour int, minute int, second int, fraction int, scale int) RETURNS tsql.time LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF hour BETWEEN 0 AND 23 AND minute BETWEEN 0 AND 59 AND second BETWEEN 0 AND 59 AND fraction >= 0 AND fraction < 10 ^ scale THEN
        RETURN tsql.time_of(((hour * 60 + minute) * 60 + second) * 10000000::bigint + fraction * (10 ^ (7 - scale))::bigint);
    END IF;
    PERFORM tsql.fail(289, 'Cannot construct data type time, some of the arguments have values which are not valid.', '');
END $$;
CREATE OR REPLACE FUNCTION tsql.datetime2fromparts(year int, month int, day int, hour int, minute int, second int, fraction int, scale int)
RETURNS tsql.datetime2 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.datetime2_of(tsql.ticks(tsql.made_date(year, month, day)) + tsql.ticks(tsql.timefromparts(hour, minute, second, fraction, scale)));
CREATE OR REPLACE FUNCTION tsql.datetimefromparts(year int, month int, day int, hour int, minute int, second int, millisecond int)
RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.round_datetime(tsql.datetime2fromparts(year, month, day, hour, minute, second, millisecond, 3));
CREATE OR REPLACE FUNCTION tsql.smalldatetimefromparts(year int, month int, day int, hour int, minute int)
RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN tsql.datetime2fromparts(year, month, day, hour, minute, 0, 0, 0);
CREATE OR REPLACE FUNCTION tsql.datetimeoffsetfromparts(
    year int, month int, day int, hour int, minute int, second int, fraction int, hour_offset int, minute_offset int, scale int)
RETURNS tsql.datetimeoffset LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN tsql.datetimeoffset(tsql.datetime2fromparts(year, month, day, hour, minute, second, fraction, scale), hour_offset * 60 + minute_offset);
