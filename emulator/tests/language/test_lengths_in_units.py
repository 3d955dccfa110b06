"""Declared lengths count UTF-16 code units, of which a character beyond the first plane is two."""

from __future__ import annotations

from typing import Any

import pytest

from sql_client import SqlClient

CRAB = "🦀".encode("utf-16-le")
HIGH = "🚀".encode("utf-16-le")[:2]
BLANK = b" \0"


@pytest.fixture(scope="module", autouse=True)
def _tables(database: str, emulator: Any) -> None:
    client = SqlClient(emulator.connect_pymssql(database, autocommit=True))
    client.script(
        "CREATE TABLE u (id int, v nvarchar(3), c nchar(5), w varchar(7), d char(6), s sysname NULL)\nGO\n"
        "CREATE FUNCTION given(@a nvarchar(3)) RETURNS nvarchar(max) AS"
        " BEGIN DECLARE @b nvarchar(5) = @a + @a RETURN @b END\nGO\n"
        "CREATE PROCEDURE passed @a nvarchar(3), @b nvarchar(3) OUTPUT AS"
        " SET @b = N'🚀🚀' SELECT CAST(@a AS varbinary(9))"
    )
    client.connection.close()


@pytest.mark.parametrize(
    "case",
    [
        ("v", "🦀a", CRAB + b"a\0", "🦀🚀", "🦀"),
        ("v", "🦀    ", CRAB + BLANK, "🦀 🚀", "🦀 "),
        ("c", "🦀🚀x", CRAB + "🚀x".encode("utf-16-le"), "🦀🚀xy", "🦀🚀x"),
        ("c", "🦀", CRAB + 3 * BLANK, "🦀🦀🦀", "🦀🦀"),
        ("w", "🦀🦀🦀a", b"??????a", "🦀🦀🦀🦀", "🦀🦀🦀"),
        ("d", "🦀a", b"??a   ", "🦀🦀🦀a", "🦀🦀🦀"),
        ("s", "🦀" * 64, CRAB * 64, "🦀" * 64 + "a", "🦀" * 64),
    ],
)
@pytest.mark.parametrize(
    "write",
    [
        "INSERT u ({column}) VALUES (N'{value}')",
        "INSERT u (id, {column}) SELECT 1, x FROM (VALUES (N'{value}')) AS v (x)",
        "INSERT u (id) VALUES (1) UPDATE u SET {column} = N'{value}'",
        "MERGE u USING (VALUES (N'{value}')) AS v (x) ON 1 = 0 WHEN NOT MATCHED THEN INSERT ({column}) VALUES (x);",
        "DECLARE @x nvarchar(200) = N'{value}' INSERT u ({column}) VALUES (@x)",
        "INSERT u ({column}) EXEC (N'SELECT N''{value}''')",
    ],
)
def test_what_has_more_units_than_its_column_is_refused(
    client: SqlClient, write: str, case: tuple[str, str, bytes, str, str]
) -> None:
    """A case: a column, a text that fits, what is stored of it, a text that is too long, and its part in the error."""
    column, fits, is_stored_as, too_long, truncated = case
    client.run("DELETE u")
    client.run(write.format(column=column, value=fits))
    (found,) = client.rows(f"SELECT CAST({column} AS varbinary(300)), DATALENGTH({column}), {column} FROM u")
    text = is_stored_as.decode("ascii" if column in ("w", "d") else "utf-16-le")
    assert found == (is_stored_as, len(is_stored_as), text)
    client.run("DELETE u")
    number, message = client.error(write.format(column=column, value=too_long))
    assert number in (2628, 8152)
    assert client.rows(f"SELECT {column} FROM u WHERE {column} IS NOT NULL") == []
    if write.startswith("INSERT u ({column}) VALUES"):
        assert f"column '{column}'. Truncated value: '{truncated}'" in message


@pytest.mark.parametrize(
    ("expression", "units"),
    [
        ("CAST(N'🦀🚀' AS nvarchar(3))", CRAB + HIGH),
        ("CONVERT(nvarchar(2), N'🦀🚀')", CRAB),
        ("TRY_CAST(N'🚀' AS nvarchar(1))", HIGH),
        ("CAST(N'🦀' AS nchar(4))", CRAB + 2 * BLANK),
        ("CAST(N'🦀🚀' AS nchar(3))", CRAB + HIGH),
        ("CAST(N'🦀' AS nchar(3)) + N'a'", CRAB + BLANK + b"a\0"),
        ("CAST(N'🦀🚀' AS varchar(3))", b"???"),
        ("CAST(N'🦀' AS char(3))", b"?? "),
        ("CAST(REPLICATE(N'🦀', 40) AS nvarchar)", CRAB * 15),
        ("ISNULL(CAST(NULL AS nvarchar(3)), N'🦀🚀')", CRAB + HIGH),
        ("dbo.given(N'🦀🚀')", (CRAB + HIGH + CRAB + HIGH)[:10]),
        ("LEFT(N'🦀🚀', 3)", CRAB + HIGH),
        ("RIGHT(N'a🦀', 1)", CRAB[2:]),
        ("SUBSTRING(N'🚀🦀', 1, 1)", HIGH),
        ("STUFF(N'a🦀b', 2, 2, N'🚀')", "a🚀b".encode("utf-16-le")),
        ("REPLACE(N'🦀a', N'a', N'🚀')", "🦀🚀".encode("utf-16-le")),
        ("TRANSLATE(N'a🦀', N'🦀', N'xy')", "axy".encode("utf-16-le")),
        ("TRIM(N' 🦀 ')", CRAB),
    ],
)
def test_units_that_have_no_place_are_cut_off(client: SqlClient, expression: str, units: bytes) -> None:
    assert client.rows(f"SELECT CAST({expression} AS varbinary(300)), DATALENGTH({expression})") == [
        (units, len(units))
    ]
    # It arrives, as the type with which it is announced.
    assert len(client.rows(f"SELECT {expression} AS x")) == 1


@pytest.mark.parametrize(
    ("declared", "units"),
    [("nvarchar(3)", CRAB + HIGH), ("nvarchar(2)", CRAB), ("nchar(3)", CRAB + HIGH), ("varchar(3)", b"???")],
)
def test_variable_keeps_the_units_that_it_has_a_place_for(client: SqlClient, declared: str, units: bytes) -> None:
    read = "SELECT CAST(@x AS varbinary(300)), DATALENGTH(@x); SELECT @x"
    for assigned in (
        f"DECLARE @x {declared} = N'🦀🚀'",
        f"DECLARE @x {declared} SET @x = N'🦀' + N'🚀'",
        f"DECLARE @x {declared} SELECT @x = t FROM (VALUES (N'🦀🚀')) AS v (t)",
        f"DECLARE @x {declared} DECLARE c CURSOR LOCAL FOR SELECT N'🦀🚀' OPEN c FETCH c INTO @x",
    ):
        values, shown = client.run(f"{assigned} {read}")
        assert values == [(units, len(units))]
        assert len(shown) == 1


def test_parameters_have_the_units_of_their_types(client: SqlClient) -> None:
    passed, received = client.run(
        "DECLARE @o nvarchar(3) EXEC passed N'🦀🚀', @o OUTPUT SELECT CAST(@o AS varbinary(9))"
    )
    assert (passed, received) == ([(CRAB + HIGH,)], [("🚀".encode("utf-16-le") + HIGH,)])
    executed = "EXEC sp_executesql N'SELECT CAST(@a AS varbinary(9))', N'@a nvarchar(1)', @a = N'🚀'"
    assert client.value(executed) == HIGH


@pytest.mark.parametrize("table", ["#t", "@t"])
def test_tables_of_the_session_count_units(client: SqlClient, table: str) -> None:
    made = f"{'CREATE TABLE #t' if table == '#t' else 'DECLARE @t TABLE'} (v nvarchar(3), c nchar(3))"
    read = f"SELECT v, c, c + N'|' FROM {table}"
    assert client.rows(f"{made} INSERT {table} VALUES (N'🦀a', N'🦀') {read}") == [("🦀a", "🦀 ", "🦀 |")]
    client.run("DROP TABLE IF EXISTS #t")
    assert client.error(f"{made} INSERT {table} (v) VALUES (N'🦀🚀')")[0] == 2628


def test_select_into_and_alter_column_count_units(client: SqlClient) -> None:
    client.run("SELECT N'🦀🚀' AS v, N'🦀' + N'a' AS w INTO made")
    assert client.rows("SELECT COL_LENGTH('made', 'v'), COL_LENGTH('made', 'w')") == [(8, 6)]
    assert client.error("ALTER TABLE made ALTER COLUMN v nvarchar(3)")[0] in (2628, 8152)
    client.run("ALTER TABLE made ALTER COLUMN v nchar(6)")
    assert client.rows("SELECT v, w FROM made") == [("🦀🚀  ", "🦀a")]


def test_rows_of_many_pairs_arrive(client: SqlClient) -> None:
    query = "SELECT value, CAST(N'🦀' AS nchar(4)), CAST(N'🦀🚀' AS nvarchar(4)), CAST(N'🦀' AS varchar(2))"
    found = client.rows(f"{query} FROM GENERATE_SERIES(1, 9000)")
    assert found == [(n, "🦀  ", "🦀🚀", "??") for n in range(1, 9001)]


def test_key_of_fixed_length_finds_its_row(client: SqlClient) -> None:
    client.run("CREATE TABLE fixed (c nchar(4) PRIMARY KEY) INSERT fixed VALUES (N'🦀'), (N'🦀🚀')")
    assert client.rows("SELECT c FROM fixed WHERE c = N'🦀'") == [("🦀  ",)]
    assert client.rows("SELECT c FROM fixed WHERE c LIKE N'🦀__'") == [("🦀  ",), ("🦀🚀",)]
    assert client.error("INSERT fixed VALUES (N'🦀 ')")[0] == 2627


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("LEN(REPLICATE(N'🦀', 4000))", 4000),
        ("LEN(REPLACE(REPLICATE(N'a', 4000), N'a', N'🦀'))", 4000),
        ("DATALENGTH(QUOTENAME(REPLICATE(N'🦀', 64)))", 260),
        ("DATALENGTH(QUOTENAME(REPLICATE(N'🦀', 65)))", None),
        ("LEN(CAST(REPLICATE(N'🦀', 1500) AS nvarchar(3000)) + CAST(REPLICATE(N'🦀', 1500) AS nvarchar(3000)))", 4000),
        ("CHARINDEX(N'🚀', N'🦀🚀')", 3),
        ("PATINDEX(N'%🚀%', N'🦀🚀')", 3),
        ("PATINDEX(N'%_b', N'🦀b')", 2),
        ("PATINDEX(N'%[b]%' COLLATE Latin1_General_BIN2, N'🦀b')", 3),
        ("DATALENGTH(CAST(N'🦀' AS varchar(9)))", 2),
        ("DATALENGTH(JSON_VALUE(N'{\"a\": \"🦀\"}', '$.a'))", 4),
    ],
)
def test_functions_count_units(client: SqlClient, expression: str, value: object) -> None:
    assert client.value(f"SELECT {expression}") == value


@pytest.mark.parametrize(
    ("pattern", "is_like"), [("_b", 0), ("__b", 1), ("%b", 1), ("[🦀]b", 0), ("__[b]", 1), ("🦀_", 1), ("🚀_", 0)]
)
def test_wildcard_is_one_unit(client: SqlClient, pattern: str, is_like: int) -> None:
    for collation in ("Latin1_General_CI_AS", "Latin1_General_BIN2"):
        tested = f"N'🦀b' COLLATE {collation} LIKE"
        assert client.value(f"SELECT CASE WHEN {tested} N'{pattern}' THEN 1 ELSE 0 END") == is_like
        asked = f"DECLARE @p nvarchar(9) = N'{pattern}' SELECT CASE WHEN {tested} @p THEN 1 ELSE 0 END"
        assert client.value(asked) == is_like


def test_text_size_cuts_units(client: SqlClient) -> None:
    assert client.run("SET TEXTSIZE 6 SELECT CAST(N'a🚀b' AS nvarchar(max))")[-1] == [("a🚀",)]
    read = "SET TEXTSIZE 4 SELECT CAST(N'🦀🚀' AS nvarchar(max)) FROM GENERATE_SERIES(1, 9000) SET TEXTSIZE -1"
    assert client.run(read)[0] == [("🦀",)] * 9000


def test_every_byte_is_a_character_of_its_own(client: SqlClient) -> None:
    every = bytes(range(256))
    found = client.value(f"SELECT CAST(CAST(0x{every.hex()} AS varchar(256)) AS varbinary(256))")
    assert found == every
    assert client.rows("SELECT UNICODE(CHAR(129)), ASCII(CHAR(144)), UNICODE(CAST(0x8090 AS varchar(2)))") == [
        (129, 144, 8364)
    ]
    # Others that the code page lacks are lost, and their neighbours are not.
    assert (
        client.value("SELECT CAST(CAST(NCHAR(4660) + NCHAR(144) + N'€' AS varchar(3)) AS varbinary(3))") == b"?\x90\x80"
    )


@pytest.mark.parametrize(
    ("column", "statement"),
    [
        ("a", "INSERT bytes (a) VALUES (0x01020304)"),
        ("v", "INSERT bytes (v) VALUES (0x0102030405)"),
        ("v", "INSERT bytes (a, v, s) SELECT 0x01, 0x0102030405, 'a'"),
        ("v", "DECLARE @v varbinary(10) = 0x0102030405; INSERT bytes (v) VALUES (@v)"),
        ("x", "INSERT bytes (w, x) VALUES (0x01, 0x010203040506)"),
        ("v", "INSERT bytes (v) VALUES (0x01); UPDATE bytes SET v = 0x0102030405"),
    ],
)
def test_binary_value_that_is_too_long_names_table_and_column(client: SqlClient, column: str, statement: str) -> None:
    client.run("DROP TABLE IF EXISTS bytes")
    client.run("CREATE TABLE bytes (a binary(3), v varbinary(4), s varchar(4), w varbinary(5), x varbinary(5))")
    number, message = client.error(statement)
    assert number == 2628
    assert f".dbo.bytes', column '{column}'. Truncated value: ''." in message
    # A string of the same length is another column.
    number, message = client.error("INSERT bytes (s) VALUES ('abcde')")
    assert number == 2628
    assert ".dbo.bytes', column 's'. Truncated value: 'abcd'." in message


def test_characters_that_the_code_page_lacks_become_similar_ones(client: SqlClient) -> None:
    assert client.rows("SELECT 'č', CAST(N'ł' AS varchar(5)), CAST(N'\uff37' AS varchar(5))") == [("c", "l", "W")]
    assert client.rows("SELECT CAST(N'Ω漢🦀' AS varbinary(4)), CAST(CAST(N'Ω漢🦀' AS varchar(4)) AS varbinary(4))") == [
        (b"\xa9\x03\x22\x6f", b"O???")
    ]
    # A literal without N has them before it goes anywhere.
    assert client.rows("SELECT CAST('č漢' AS nvarchar(5)), N'č', IIF('č' = 'c', 1, 0), LEN('🦀')") == [
        ("c?", "č", 1, 2)
    ]
    declared = "DECLARE @a varchar(9) = N'ł', @b nvarchar(9) = 'č', @c nvarchar(9) = N'č'"
    assert client.rows(f"{declared} SELECT @a, @b, @c, TRY_CAST(@c AS varchar(3)), CONVERT(char(2), @c)") == [
        ("l", "c", "č", "c", "c ")
    ]


def test_column_of_varchar_stores_similar_characters(client: SqlClient) -> None:
    client.run("CREATE TABLE similar (id int, v varchar(9), n nvarchar(9), t text)")
    client.run("INSERT similar VALUES (1, N'ł', 'č', N'č'), (2, N'漢', N'漢', '漢')")
    client.run("INSERT similar SELECT 3, n, n, n FROM similar WHERE id = 2")
    client.run("UPDATE similar SET v = N'Ź' + n WHERE id = 3")
    assert client.rows("SELECT id, v, n, CAST(t AS varchar(3)) FROM similar ORDER BY id") == [
        (1, "l", "c", "c"),
        (2, "?", "漢", "?"),
        (3, "Z?", "漢", "?"),
    ]
    assert client.rows("SELECT id FROM similar WHERE v IN ('l', 'Z?') ORDER BY id") == [(1,), (3,)]
    assert client.rows("SELECT id FROM similar WHERE v = N'ł'") == []
