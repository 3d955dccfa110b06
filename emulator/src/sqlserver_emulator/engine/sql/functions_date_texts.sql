-- Dates and times to strings by CONVERT's styles.

-- Dates: writing ------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION tsql.fraction(value tsql.datetime2, digits int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN pg_catalog.left(lpad((tsql.ticks(value) % 10000000)::text, 7, '0'), digits);
CREATE OR REPLACE FUNCTION tsql.point_fraction(value tsql.datetime2, digits int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN digits = 0 THEN '' ELSE '.' || tsql.fraction(value, digits) END;
CREATE OR REPLACE FUNCTION tsql.hour12(value timestamp) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN lpad(to_char(value, 'FMHH12'), 2);
CREATE OR REPLACE FUNCTION tsql.day_text(value timestamp) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN lpad(to_char(value, 'FMDD'), 2);
CREATE OR REPLACE FUNCTION tsql.timestamp_to_text(moment tsql.datetime2, style int, digits int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    value timestamp := tsql.cut(moment);
    year text := CASE WHEN style < 20 AND style NOT IN (0, 9, 13) THEN 'YY' ELSE 'YYYY' END;
    fraction text := CASE WHEN digits = 0 THEN '' ELSE '.' || tsql.fraction(moment, digits) END;
BEGIN
    CASE style
        WHEN 120, 20 THEN RETURN to_char(value, 'YYYY-MM-DD HH24:MI:SS');
        WHEN 121, 21, 25 THEN RETURN to_char(value, 'YYYY-MM-DD HH24:MI:SS') || tsql.point_fraction(moment, digits);
        WHEN 126, 127 THEN
            RETURN to_char(value, 'YYYY-MM-DD"T"HH24:MI:SS')
                || CASE WHEN tsql.ticks(moment) % 10000000 = 0 THEN '' ELSE tsql.point_fraction(moment, digits) END
                || CASE style WHEN 127 THEN 'Z' ELSE '' END;
        WHEN 0, 100 THEN RETURN to_char(value, 'Mon ') || tsql.day_text(value) || to_char(value, ' YYYY ') || tsql.hour12(value) || to_char(value, ':MIAM');
        WHEN 9, 109 THEN
            RETURN to_char(value, 'Mon ') || tsql.day_text(value) || to_char(value, ' YYYY ') || tsql.hour12(value) || to_char(value, ':MI:SS')
                || fraction || to_char(value, 'AM');
        WHEN 1, 101 THEN RETURN to_char(value, 'MM/DD/' || year);
        WHEN 2, 102 THEN RETURN to_char(value, year || '.MM.DD');
        WHEN 3, 103 THEN RETURN to_char(value, 'DD/MM/' || year);
        WHEN 4, 104 THEN RETURN to_char(value, 'DD.MM.' || year);
        WHEN 5, 105 THEN RETURN to_char(value, 'DD-MM-' || year);
        WHEN 6, 106 THEN RETURN to_char(value, 'DD Mon ' || year);
        WHEN 7, 107 THEN RETURN to_char(value, 'Mon DD, ' || year);
        WHEN 8, 24, 108 THEN RETURN to_char(value, 'HH24:MI:SS');
        WHEN 10, 110 THEN RETURN to_char(value, 'MM-DD-' || year);
        WHEN 11, 111 THEN RETURN to_char(value, year || '/MM/DD');
        WHEN 12, 112 THEN RETURN to_char(value, year || 'MMDD');
        WHEN 13, 113 THEN RETURN to_char(value, 'DD Mon YYYY HH24:MI:SS') || fraction;
        WHEN 14, 114 THEN RETURN to_char(value, 'HH24:MI:SS') || fraction;
        WHEN 22 THEN RETURN to_char(value, 'MM/DD/YY ') || tsql.hour12(value) || to_char(value, ':MI:SS AM');
        WHEN 23 THEN RETURN to_char(value, 'YYYY-MM-DD');
        WHEN 130, 131 THEN RETURN tsql.fail(49999, 'sqlserver_emulator does not support CONVERT with style %s (Hijri calendar). See docs/emulator.md.', style::text);
        ELSE RETURN tsql.fail(281, '%s is not a valid style number when converting from datetime to a character string.', style::text);
    END CASE;
END $$;
-- datetime and smalldatetime have milliseconds, and those behind a colon where datetime2 has its fraction behind a point.
CREATE OR REPLACE FUNCTION tsql.datetime_to_text(value timestamp, style int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN style IN (9, 109, 13, 113, 14, 114)
    THEN regexp_replace(tsql.timestamp_to_text(value, style, 3), '\.(?=\d\d\d)', ':') ELSE tsql.timestamp_to_text(value, style, 3) END;
CREATE OR REPLACE FUNCTION tsql.date_to_text(value date, style int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN style IN (20, 21, 23, 25, 120, 121, 126, 127) THEN to_char(value, 'YYYY-MM-DD')
    WHEN style IN (0, 100, 9, 109) THEN to_char(value, 'Mon ') || tsql.day_text(value) || to_char(value, ' YYYY')
    WHEN style IN (13, 113) THEN to_char(value, 'DD Mon YYYY') ELSE tsql.timestamp_to_text(value::timestamp, style, 0) END;
CREATE OR REPLACE FUNCTION tsql.time_to_text(value tsql.time, style int, digits int) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN style IN (1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 23) OR style BETWEEN 101 AND 107 OR style BETWEEN 110 AND 112
            THEN tsql.fail(281, '%s is not a valid style number when converting from time to a character string.', style::text)
        WHEN style IN (9, 109) THEN tsql.hour12(moment) || to_char(moment, ':MI:SS') || tsql.point_fraction(at, digits) || to_char(moment, 'AM')
        WHEN style IN (0, 100) THEN tsql.hour12(moment) || to_char(moment, ':MIAM')
        WHEN style IN (8, 20, 24, 108, 120) THEN to_char(moment, 'HH24:MI:SS')
        ELSE to_char(moment, 'HH24:MI:SS') || tsql.point_fraction(at, digits) END
    FROM (SELECT tsql.cut(at) AS moment, at FROM (SELECT tsql.in_1900(value) AS at) v) m $$;
CREATE OR REPLACE FUNCTION tsql.datetimeoffset_to_text(value tsql.datetimeoffset, style int, digits int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN style = 127 THEN to_char(tsql.cut((value).utc), 'YYYY-MM-DD"T"HH24:MI:SS') || tsql.point_fraction((value).utc, digits) || 'Z'
    WHEN style = 126 THEN tsql.timestamp_to_text(tsql.local_time(value), 126, digits) || tsql.offset_text((value).offset_minutes)
    ELSE tsql.timestamp_to_text(tsql.local_time(value), style, digits) || ' ' || tsql.offset_text((value).offset_minutes) END;
