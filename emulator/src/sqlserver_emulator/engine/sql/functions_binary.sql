-- Binary strings: to and from text, numbers and uniqueidentifiers; hashes.

-- Binary --------------------------------------------------------------------------------------------------------------

-- What a varchar has of a text of national characters.
CREATE OR REPLACE FUNCTION tsql.fit_code_page(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN regexp_replace(tsql.best_fit(tsql.spread(value)),
    '[^\x01-\x7f\x81\x8d\x8f\x90\x9d\xa0-\xff€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ' || chr(1112064) || ']', '?', 'g');
CREATE OR REPLACE FUNCTION tsql.in_code_page(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN octet_length(value) = char_length(value) THEN value ELSE tsql.fit_code_page(value) END;
CREATE OR REPLACE FUNCTION tsql.text_to_binary(value text, style int, is_national boolean) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE digits text := value;
BEGIN
    IF style IN (1, 2) THEN
        IF style = 1 THEN
            IF value !~* '^0x' THEN PERFORM tsql.fail(8114, 'Error converting data type varchar to varbinary.', value, 16, 5); END IF;
            digits := pg_catalog.substr(value, 3);
        END IF;
        IF digits !~* '^([0-9a-f]{2})*$' THEN PERFORM tsql.fail(8114, 'Error converting data type varchar to varbinary.', value, 16, 5); END IF;
        RETURN decode(digits, 'hex');
    END IF;
    IF is_national THEN RETURN tsql.to_utf16(value); END IF;
    IF octet_length(value) = char_length(value) THEN RETURN convert_to(value, 'UTF8'); END IF;
    IF strpos(value, chr(1112064)) > 0 THEN
        RETURN (SELECT string_agg(tsql.text_to_binary(part, 0, false), '\x00'::bytea ORDER BY number)
            FROM unnest(string_to_array(value, chr(1112064))) WITH ORDINALITY AS p(part, number));
    END IF;
    BEGIN
        RETURN convert_to(value, 'WIN1252');
    EXCEPTION WHEN untranslatable_character THEN
        -- The five bytes that are no characters there have the code points of the same numbers.
        RETURN convert_to(translate(regexp_replace(tsql.best_fit(tsql.spread(value)), '[^\x01-\x7f\x81\x8d\x8f\x90\x9d\xa0-\xff€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]', '?', 'g'),
            '€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ', E'\u0080\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008e\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009e\u009f'), 'LATIN1');
    END;
END $$;
CREATE OR REPLACE FUNCTION tsql.try_text_to_binary(value text, style int, is_national boolean) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN RETURN tsql.text_to_binary(value, style, is_national); EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$;
CREATE OR REPLACE FUNCTION tsql.refuse_text_to_binary(value text, source text, target text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value IS NOT NULL THEN tsql.fail(257, format(
    'Implicit conversion from data type %s to %s is not allowed. Use the CONVERT function to run this query.', source, target), '', 16, 3)::bytea END;
CREATE OR REPLACE FUNCTION tsql.binary_to_text(value bytea, style int, is_national boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF style = 1 THEN RETURN '0x' || upper(encode(value, 'hex')); END IF;
    IF style = 2 THEN RETURN upper(encode(value, 'hex')); END IF;
    IF is_national THEN RETURN tsql.from_utf16(value); END IF;
    IF position('\x00'::bytea IN value) > 0 THEN
        RETURN (SELECT string_agg(tsql.binary_to_text(decode(part, 'hex'), 0, false), chr(1112064) ORDER BY number)
            FROM regexp_split_to_table(regexp_replace(encode(value, 'hex'), '(..)', '\1 ', 'g'), '00 ') WITH ORDINALITY AS p(part, number));
    END IF;
    BEGIN
        RETURN convert_from(value, 'WIN1252');
    EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
        RETURN translate(convert_from(value, 'LATIN1'), E'\u0080\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008e\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009e\u009f', '€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ');
    END;
END $$;
CREATE OR REPLACE FUNCTION tsql.fit_binary(value bytea, length int, fixed boolean) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN octet_length(value) > length THEN pg_catalog.substr(value, 1, length)
    WHEN fixed AND octet_length(value) < length THEN value || decode(repeat('00', length - octet_length(value)), 'hex') ELSE value END;
CREATE OR REPLACE FUNCTION tsql.pad_binary(value bytea, length int) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(value) < length THEN value || decode(repeat('00', length - octet_length(value)), 'hex') ELSE value END;
CREATE OR REPLACE FUNCTION tsql.assign_binary(value bytea, length int, fixed boolean) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF octet_length(value) > length THEN
        RAISE EXCEPTION USING ERRCODE = '22001', MESSAGE = format('value too long for type binary(%s)', length);
    END IF;
    RETURN tsql.fit_binary(value, length, fixed);
END $$;
CREATE OR REPLACE FUNCTION tsql.integer_to_binary(value bigint, size int, length int, fixed boolean) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN length < size THEN pg_catalog.substr(bytes, size - length + 1)
        WHEN fixed THEN decode(repeat('00', length - size), 'hex') || bytes ELSE bytes END
    FROM (SELECT pg_catalog.substr(int8send(value), 9 - size) AS bytes) b $$;
-- The rightmost bytes, of two's complement where there are as many as the type has. It is inlined: readers of change tables
-- call it for each row, to find a bit of the mask.
CREATE OR REPLACE FUNCTION tsql.binary_to_integer(value bytea, size int) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE size WHEN 1 THEN pg_catalog.substr(value, greatest(octet_length(value), 1))::int2::int8
    WHEN 2 THEN pg_catalog.substr(value, greatest(octet_length(value) - 1, 1))::int2::int8
    WHEN 4 THEN pg_catalog.substr(value, greatest(octet_length(value) - 3, 1))::int4::int8
    ELSE pg_catalog.substr(value, greatest(octet_length(value) - 7, 1))::int8 END;
CREATE OR REPLACE FUNCTION tsql.guid_to_binary(value uuid) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT pg_catalog.substr(b, 4, 1) || pg_catalog.substr(b, 3, 1) || pg_catalog.substr(b, 2, 1) || pg_catalog.substr(b, 1, 1)
        || pg_catalog.substr(b, 6, 1) || pg_catalog.substr(b, 5, 1) || pg_catalog.substr(b, 8, 1) || pg_catalog.substr(b, 7, 1)
        || pg_catalog.substr(b, 9) FROM (SELECT uuid_send(value) AS b) v $$;
CREATE OR REPLACE FUNCTION tsql.binary_to_guid(value bytea) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT encode(tsql.guid_to_binary(encode(tsql.fit_binary(value, 16, true), 'hex')::uuid), 'hex')::uuid $$;
CREATE OR REPLACE FUNCTION tsql.rotated(word bigint, bits int) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ((word << bits) | (word >> (32 - bits))) & 4294967295;
-- SHA-1 as RFC 3174 describes it: PostgreSQL has it only in an extension that is not there.
CREATE OR REPLACE FUNCTION tsql.sha1(data bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    mask CONSTANT bigint := 4294967295;
    size int := octet_length(data);
    message bytea := data || '\x80'::bytea || decode(repeat('00', (119 - size % 64) % 64), 'hex') || int8send(size::bigint * 8);
    h bigint[] := ARRAY[1732584193, 4023233417, 2562383102, 271733878, 3285377520];
    w bigint[];
    a bigint; b bigint; c bigint; d bigint; e bigint; f bigint; k bigint; carried bigint;
    at int;
BEGIN
    FOR block IN 0 .. octet_length(message) / 64 - 1 LOOP
        FOR t IN 0 .. 79 LOOP
            IF t < 16 THEN
                at := block * 64 + t * 4;
                w[t] := (get_byte(message, at)::bigint << 24) | (get_byte(message, at + 1) << 16)
                    | (get_byte(message, at + 2) << 8) | get_byte(message, at + 3);
            ELSE
                w[t] := tsql.rotated(w[t - 3] # w[t - 8] # w[t - 14] # w[t - 16], 1);
            END IF;
        END LOOP;
        a := h[1]; b := h[2]; c := h[3]; d := h[4]; e := h[5];
        FOR t IN 0 .. 79 LOOP
            IF t < 20 THEN f := (b & c) | ((~b & mask) & d); k := 1518500249;
            ELSIF t < 40 THEN f := b # c # d; k := 1859775393;
            ELSIF t < 60 THEN f := (b & c) | (b & d) | (c & d); k := 2400959708;
            ELSE f := b # c # d; k := 3395469782;
            END IF;
            carried := (tsql.rotated(a, 5) + f + e + k + w[t]) & mask;
            e := d; d := c; c := tsql.rotated(b, 30); b := a; a := carried;
        END LOOP;
        h := ARRAY[(h[1] + a) & mask, (h[2] + b) & mask, (h[3] + c) & mask, (h[4] + d) & mask, (h[5] + e) & mask];
    END LOOP;
    RETURN decode((SELECT string_agg(lpad(to_hex(word), 8, '0'), '' ORDER BY place)
                   FROM unnest(h) WITH ORDINALITY AS u(word, place)), 'hex');
END $$;
CREATE OR REPLACE FUNCTION tsql.hashbytes(algorithm text, data bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    CASE upper(algorithm)
        WHEN 'MD5' THEN RETURN decode(md5(data), 'hex');
        WHEN 'SHA2_256' THEN RETURN sha256(data);
        WHEN 'SHA2_512' THEN RETURN sha512(data);
        WHEN 'SHA', 'SHA1' THEN RETURN tsql.sha1(data);
        WHEN 'MD2', 'MD4' THEN
            PERFORM tsql.fail(49999, 'sqlserver_emulator does not support HASHBYTES with %s. See docs/emulator.md.', algorithm);
        ELSE RETURN NULL;
    END CASE;
END $$;

-- The bytes of a number in a (var)binary: the rightmost are kept, zeros go before them.
CREATE OR REPLACE FUNCTION tsql.keep_right(bytes bytea, size int, length int, fixed boolean) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN length < size THEN pg_catalog.substr(bytes, size - length + 1)
    WHEN fixed THEN decode(repeat('00', length - size), 'hex') || bytes ELSE bytes END;
CREATE OR REPLACE FUNCTION tsql.money_bytes(value numeric) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN int8send((value * 10000)::int8);
CREATE OR REPLACE FUNCTION tsql.smallmoney_bytes(value numeric) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN int4send((value * 10000)::int4);
-- datetime is days since 1900 and ticks of 1/300 second.
CREATE OR REPLACE FUNCTION tsql.datetime_bytes(value timestamp) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN int4send(value::date - date '1900-01-01') || int4send(pg_catalog.round(extract(epoch FROM value::time) * 300)::int4);
CREATE OR REPLACE FUNCTION tsql.binary_to_datetime(value bytea) RETURNS timestamp LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT tsql.round_datetime(date '1900-01-01' + tsql.binary_to_integer(pg_catalog.substr(b, 1, 4), 4)::int
        + tsql.binary_to_integer(pg_catalog.substr(b, 5, 4), 4) * interval '1 second' / 300)
    FROM (SELECT pg_catalog.substr(decode(repeat('00', 8), 'hex') || value, octet_length(value) + 1) AS b) v $$;
