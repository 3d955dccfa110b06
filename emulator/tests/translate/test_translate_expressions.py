"""Results of translated expressions on PostgreSQL, against those of SQL Server (its documentation)."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from sqlserver_emulator import precise

if TYPE_CHECKING:
    from translate_server import Server

pytest_plugins = ("translate_server",)

_DAY = datetime.date(2024, 1, 2)
_MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5)

SCALARS = [
    # numbers
    ("7 / 2", 3),
    ("-7 / 2", -3),
    ("7 % 3", 1),
    ("7 / 2.0", Decimal("3.500000")),
    ("2.0 / 3", Decimal("0.666666")),
    ("CAST(1 AS decimal(18,2)) / 3", Decimal("0.333333")),
    ("$10 / 3", Decimal("3.3333")),
    ("5 / 2e0", 2.5),
    ("1.5 * 1.5", Decimal("2.25")),
    ("2147483648", Decimal("2147483648")),
    ("ROUND(123.456, 1, 1)", Decimal("123.400")),
    ("ROUND(2.5, 0)", Decimal("3.0")),
    ("POWER(2, 10)", 1024),
    ("SQUARE(3)", 9.0),
    ("LOG(8, 2)", 3.0),
    ("ABS(-5)", 5),
    ("CEILING(1.2)", Decimal("2")),
    ("FLOOR(-1.2)", Decimal("-2")),
    ("SIGN(-3)", -1),
    ("5 & 3", 1),
    ("5 ^ 3", 6),
    ("~5", -6),
    # conversion
    ("CAST(12.7 AS int)", 12),
    ("CAST(-12.7 AS int)", -12),
    ("CAST('' AS int)", 0),
    ("CAST(' 12 ' AS int)", 12),
    ("CAST(2.5 AS int)", 2),
    ("CAST('1.5' AS decimal(10,1))", Decimal("1.5")),
    ("CAST(5 AS bit)", 1),
    ("CAST('true' AS bit)", 1),
    ("TRY_CAST('x' AS int)", None),
    ("TRY_CONVERT(date, 'x')", None),
    ("TRY_CAST(300 AS tinyint)", None),
    ("CAST('abcdef' AS varchar(3))", "abc"),
    ("CAST('ab' AS char(4)) + '|'", "ab  |"),
    ("'5' + 1", 6),
    ("CAST(1.50 AS varchar(10))", "1.50"),
    ("CAST($1234.5678 AS varchar(20))", "1234.57"),
    ("CONVERT(varchar(20), $1234.5678, 1)", "1,234.57"),
    ("CAST(CAST(1.5 AS float) AS varchar(20))", "1.5"),
    ("CAST(CAST(1234567 AS float) AS varchar(20))", "1.23457e+006"),
    ("CAST(0.00001e0 AS varchar(20))", "1e-005"),
    ("CONVERT(varchar(20), 0x01AB, 1)", "0x01AB"),
    ("CONVERT(varchar(20), 0x01AB, 2)", "01AB"),
    ("CONVERT(varbinary(10), '0x01AB', 1)", b"\x01\xab"),
    ("CONVERT(binary(4), '01AB', 2)", b"\x01\xab\x00\x00"),
    ("CAST('AB' AS varbinary(5))", b"AB"),
    ("CAST(N'AB' AS varbinary(8))", b"A\x00B\x00"),
    ("CAST(0x4142 AS varchar(5))", "AB"),
    ("CAST(5 AS varbinary(8))", b"\x00\x00\x00\x05"),
    ("CAST(258 AS binary(2))", b"\x01\x02"),
    ("CAST(0xFFFFFFFF AS int)", -1),
    ("CAST(0x0000002D AS bigint)", 45),
    ("0x0", b"\x00"),
    ("0x", b""),
    # strings
    ("LEN('abc  ')", 3),
    ("DATALENGTH('abc  ')", 5),
    ("DATALENGTH(N'abc')", 6),
    ("LEN(N'😀')", 2),
    ("DATALENGTH(5)", 4),
    ("SUBSTRING('hello', 0, 3)", "he"),
    ("LEFT('hello', 2)", "he"),
    ("RIGHT('hello', 2)", "lo"),
    ("CHARINDEX('l', 'hello', 4)", 4),
    ("CHARINDEX('L', 'hello')", 3),
    ("PATINDEX('%[0-9]%', 'ab3c')", 3),
    ("PATINDEX('ab%', 'xab')", 0),
    ("REPLACE('aXbX', 'X', 'y')", "ayby"),
    ("REPLICATE('ab', 3)", "ababab"),
    ("STUFF('abcdef', 2, 3, 'X')", "aXef"),
    ("STUFF('abc', 9, 1, 'X')", None),
    ("STR(3.14159, 6, 2)", "  3.14"),
    ("STR(123456, 3)", "***"),
    ("QUOTENAME('a]b')", "[a]]b]"),
    ("QUOTENAME('a''b', '''')", "'a''b'"),
    ("PARSENAME('db.dbo.[t.x]', 1)", "t.x"),
    ("PARSENAME('db.dbo.t', 3)", "db"),
    ("CHAR(65)", "A"),
    ("NCHAR(233)", "é"),
    ("UNICODE(N'é')", 233),
    ("ASCII('A')", 65),
    ("CONCAT('a', NULL, 1)", "a1"),
    ("CONCAT_WS(',', 'a', NULL, 'b')", "a,b"),
    ("'a' + NULL", None),
    ("TRIM('  a ') + '|'", "a|"),
    ("REVERSE('abc')", "cba"),
    ("STRING_ESCAPE('a\"b', 'json')", 'a\\"b'),
    ("HASHBYTES('MD5', 'a')", bytes.fromhex("0cc175b9c0f1b6a831c399e269772661")),
    # choices
    ("ISNULL(CAST(NULL AS varchar(2)), 'abc')", "ab"),
    ("COALESCE(NULL, 1, 2)", 1),
    ("NULLIF('a', 'b')", "a"),
    ("IIF(1 = 1, 'a', 'bb')", "a"),
    ("CHOOSE(2, 'a', 'b')", "b"),
    ("CASE WHEN 1 = 1 THEN 1 ELSE 2.5 END", Decimal("1.0")),
    ("CASE 3 WHEN 1 THEN 'a' END", None),
    ("ISNUMERIC('1.5')", 1),
    ("ISNUMERIC('x')", 0),
    ("ISDATE('x')", 0),
    ("ISJSON('{}')", 1),
    # dates
    ("CAST('2024-01-02 03:04:05.678' AS datetime)", _MOMENT.replace(microsecond=677000)),
    ("CAST('2024-01-02 03:04:05.999' AS datetime)", _MOMENT.replace(second=6)),
    ("CAST('2024-01-02 03:04:31' AS smalldatetime)", datetime.datetime(2024, 1, 2, 3, 5)),
    ("CAST('2024-01-02 03:04:05.1234567' AS datetime2)", precise.datetime_of(precise.ticks(_MOMENT) + 1_234_567)),
    ("CAST('20240102' AS date)", _DAY),
    ("CAST('01/02/2024' AS date)", _DAY),
    ("CONVERT(date, '02/01/2024', 103)", _DAY),
    ("CAST('2024-01-02T03:04:05Z' AS datetime2)", precise.datetime_of(precise.ticks(_MOMENT))),
    ("CAST('03:04' AS time)", precise.time_of(precise.time_ticks(datetime.time(3, 4)))),
    ("CAST(0 AS datetime)", datetime.datetime(1900, 1, 1)),
    ("CAST(_d AS datetime) + 1", datetime.datetime(2024, 1, 3)),
    ("CONVERT(varchar(30), CAST('2024-01-02 03:04:05.678' AS datetime))", "Jan  2 2024  3:04AM"),
    ("CONVERT(varchar(30), CAST('2024-01-02 03:04:05.678' AS datetime), 121)", "2024-01-02 03:04:05.677"),
    ("CONVERT(varchar(30), CAST('2024-01-02 03:04:05' AS datetime), 126)", "2024-01-02T03:04:05"),
    ("CONVERT(varchar(30), CAST('2024-01-02 03:04:05.5' AS datetime2(2)))", "2024-01-02 03:04:05.50"),
    ("CONVERT(varchar(10), CAST(_d AS date), 101)", "01/02/2024"),
    ("CONVERT(char(8), CAST(_d AS date), 112)", "20240102"),
    ("DATEADD(month, 1, CAST('2024-01-31' AS date))", datetime.date(2024, 2, 29)),
    ("DATEDIFF(day, '2024-01-01', '2024-03-01')", 60),
    ("DATEDIFF(year, '2023-12-31', '2024-01-01')", 1),
    ("DATEDIFF(week, '2024-01-06', '2024-01-07')", 1),
    ("DATEDIFF_BIG(ms, '2000-01-01', '2024-01-01')", 757382400000),
    ("DATEPART(weekday, '2024-03-03')", 1),
    ("DATEPART(iso_week, '2021-01-01')", 53),
    ("DATENAME(month, _d)", "January"),
    ("EOMONTH('2024-01-31', 1)", datetime.date(2024, 2, 29)),
    ("DATEFROMPARTS(2024, 1, 2)", _DAY),
    ("DATETIME2FROMPARTS(2024, 1, 2, 3, 4, 5, 5, 1)", _MOMENT.replace(microsecond=500000)),
    (
        "CONVERT(varchar(40), CAST('2024-01-02 03:04:05.1 +02:00' AS datetimeoffset(3)))",
        "2024-01-02 03:04:05.100 +02:00",
    ),
    (
        "CAST(CAST('2024-07-02' AS datetime2) AT TIME ZONE 'W. Europe Standard Time' AS varchar(40))",
        "2024-07-02 00:00:00.0000000 +02:00",
    ),
    (
        "CAST(SWITCHOFFSET(CAST('2024-01-02 00:00 +00:00' AS datetimeoffset(0)), '-08:00') AS varchar(40))",
        "2024-01-01 16:00:00 -08:00",
    ),
    ("DATEPART(TZOFFSET, TODATETIMEOFFSET(CAST(_d AS datetime2), 90))", 90),
    # uniqueidentifier
    ("CAST('6F9619FF-8B86-D011-B42D-00C04FC964FF' AS uniqueidentifier)", UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")),
    ("CAST(0xFF19966F868B11D0B42D00C04FC964FF AS uniqueidentifier)", UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")),
    # metadata
    ("DB_ID()", 5),
    ("DB_ID('other')", 6),
    ("DB_NAME(6)", "Other"),
    ("TYPE_NAME(56)", "int"),
    ("TYPE_ID('nvarchar')", 231),
    ("CAST(SERVERPROPERTY('EngineEdition') AS int)", 3),
    ("DATABASEPROPERTYEX('Shop', 'Collation')", "Latin1_General_100_BIN2"),
    ("sys.fn_cdc_get_max_lsn()", bytes.fromhex("0000002D000005800001")),
]


@pytest.mark.parametrize(("expression", "expected"), SCALARS, ids=[expression for expression, _ in SCALARS])
def test_expression_gives_what_the_server_gives(server: Server, expression: str, expected: object) -> None:
    value = server.value(expression.replace("_d", "'2024-01-02'"))
    assert value == expected
    assert type(value) is type(expected)


CONDITIONS = [
    ("'abc' LIKE '[a-c]bc'", True),
    ("'abc' NOT LIKE '[^a]%'", True),
    ("'a_c' LIKE 'a!_c' ESCAPE '!'", True),
    ("'abc' LIKE 'a!_c' ESCAPE '!'", False),
    ("'a%b' LIKE '%[%]%'", True),
    ("'a.c' LIKE '[a]b_'", False),
    ("'a\\c' LIKE 'a\\c'", True),
    ("NULL = NULL", False),
    ("1 IN (2, NULL)", False),
    ("NOT 1 IN (2, NULL)", False),
    ("2 BETWEEN 1 AND 3", True),
    ("'a' < 'B'", True),
    ("'a' < 'B' COLLATE Latin1_General_BIN2", False),
    ("CAST('ab' AS char(5)) = 'ab'", True),
    ("0x01 = 0x0100", True),
    ("0x = 0x0000", True),
    ("0x01 < 0x0101", True),
    ("CAST(0x00 AS binary(10)) = 0x0", True),
    ("CAST(0xFF AS binary(10)) <= 0xFF", True),
    ("CAST(0xFF AS binary(10)) IN (0x01, 0xFF)", True),
    ("0x01 IN (SELECT 0x0100)", True),
    ("'10' = 10", True),
    ("CAST('2024-01-02 01:00 +01:00' AS datetimeoffset) = CAST('2024-01-02 00:00 +00:00' AS datetimeoffset)", True),
    ("CAST('2024-01-02 01:00 +01:00' AS datetimeoffset) IN (SELECT CAST('2024-01-02' AS datetimeoffset))", True),
    ("CAST('2024-01-02' AS date) = '20240102'", True),
    ("EXISTS (SELECT 1 WHERE 1 = 0)", False),
    ("2 > ALL (SELECT 1)", True),
]


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS, ids=[condition for condition, _ in CONDITIONS])
def test_condition_decides_as_the_server_does(server: Server, condition: str, expected: bool) -> None:
    assert bool(server.run(f"SELECT 1 WHERE {condition}")) is expected


ERRORS = [
    ("SELECT CAST('x' AS int)", 245),
    ("SELECT 1 WHERE 1 = 'x'", 245),
    ("SELECT CAST('99999999999' AS int)", 248),
    ("SELECT CAST('x' AS bigint)", 8114),
    ("SELECT CAST('x' AS decimal(5,2))", 8114),
    ("SELECT CAST('1000' AS decimal(5,2))", 8115),
    ("SELECT CAST('x' AS float)", 8114),
    ("SELECT CAST('70000' AS smallint)", 244),
    ("SELECT CAST(300 AS tinyint)", 220),
    ("SELECT CAST('2024-13-01' AS date)", 241),
    ("SELECT CAST('x' AS datetime2)", 241),
    ("SELECT CAST('2024-02-30' AS datetime)", 242),
    ("SELECT CAST('zz' AS uniqueidentifier)", 8169),
    ("SELECT LEFT('abc', -1)", 537),
    ("SELECT RIGHT('abc', -1)", 536),
    ("SELECT DATEFROMPARTS(2024, 2, 30)", 289),
    ("SELECT CONVERT(varbinary(5), 'zz', 1)", 8114),
    ("SELECT CONVERT(varchar(9), GETDATE(), 99)", 281),
    ("INSERT INTO types (i, ti) VALUES (1, 256)", 220),
    ("INSERT INTO t (a) VALUES ('x')", 245),
    ("INSERT INTO t (d) VALUES ('x'), ('y')", 241),
    ("SELECT CAST(_d AS datetime2) AT TIME ZONE 'Nowhere'", 9820),
]


@pytest.mark.parametrize(("sql", "number"), ERRORS, ids=[f"{number} {sql}" for sql, number in ERRORS])
def test_statement_fails_with_the_servers_number(server: Server, sql: str, number: int) -> None:
    assert server.error(sql.replace("_d", "'2024-01-02'")) == number
