"""Values and types of arithmetic and of conversions between types, as SQL Server documents them.

Rules: https://learn.microsoft.com/sql/t-sql/data-types/precision-scale-and-length-transact-sql,
…/data-types/data-type-precedence-transact-sql and …/functions/cast-and-convert-transact-sql.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

if TYPE_CHECKING:
    from conformance_server import Client

D = Decimal
_MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5)

ARITHMETIC = [
    ("7 / 2", 3, "int"),
    ("-7 / 2", -3, "int"),
    ("-7 % 3", -1, "int"),
    ("CAST(7 AS bigint) / 2", 3, "bigint"),
    ("CAST(7 AS tinyint) + CAST(1 AS smallint)", 8, "smallint"),
    ("CAST(250 AS tinyint) + CAST(5 AS tinyint)", 255, "tinyint"),
    ("-CAST(5 AS tinyint)", -5, "smallint"),
    ("~CAST(5 AS tinyint)", 250, "tinyint"),
    ("~CAST(1 AS bit)", False, "bit"),
    ("5 & CAST(3 AS smallint)", 1, "int"),
    ("0x0F & 3", 3, "int"),
    ("0x01 + 0x02", b"\x01\x02", "varbinary(2)"),
    ("1.0 / 3", D("0.333333"), "decimal(7,6)"),
    ("2.0 / 3", D("0.666666"), "decimal(7,6)"),
    ("CAST(1 AS decimal(10,2)) / CAST(3 AS decimal(10,2))", D("0.3333333333333"), "decimal(23,13)"),
    ("CAST(1.5 AS decimal(5,2)) * CAST(2.25 AS decimal(5,2))", D("3.3750"), "decimal(11,4)"),
    ("CAST(1.5 AS decimal(5,2)) + CAST(2.25 AS decimal(7,3))", D("3.750"), "decimal(8,3)"),
    ("CAST(1 AS decimal(38,10)) + CAST(1 AS decimal(38,10))", D("2.0000000000"), "decimal(38,10)"),
    ("CAST(1 AS decimal(38,20)) + CAST(1 AS decimal(38,4))", D("2.0000"), "decimal(38,4)"),
    ("CAST(1 AS decimal(38,10)) * CAST(1 AS decimal(38,10))", D("1.000000"), "decimal(38,6)"),
    ("CAST(123.456 AS decimal(30,15)) * CAST(1.111111111111111 AS decimal(30,15))", D("137.1733333"), "decimal(38,7)"),
    ("5.5 % 2", D("1.5"), "decimal(2,1)"),
    ("'5' - 1.5", D("3.5"), "decimal(3,1)"),
    ("'2' * 3", 6, "int"),
    ("1 + '2'", 3, "int"),
    ("'1' + '2'", "12", "varchar(2)"),
    ("'1' + N'2'", "12", "nvarchar(2)"),
    ("NULL + 1", None, "int"),
    ("5 / 2e0", 2.5, "float"),
    ("CAST(1 AS real) / 4", 0.25, "float"),
    ("CAST(1 AS real) / CAST(4 AS real)", 0.25, "real"),
    ("1.5 + 1e0", 2.5, "float"),
    ("$10 / 3", D("3.3333"), "money"),
    ("$100 / 339 * $10000", D("2949.0000"), "money"),
    ("$1.2345 * $1.2345", D("1.5240"), "money"),
    ("$10 / 3.0", D("3.3333333"), "decimal(23,7)"),
    ("2147483648", D("2147483648"), "decimal(10,0)"),
    ("CAST('2024-01-02' AS datetime) + 1.5", datetime.datetime(2024, 1, 3, 12), "datetime"),
    ("CAST('2024-01-03' AS datetime) - CAST('2024-01-02' AS datetime)", datetime.datetime(1900, 1, 2), "datetime"),
    ("CASE WHEN 1 = 0 THEN 1 ELSE CAST(2.5 AS decimal(5,2)) END", D("2.50"), "decimal(12,2)"),
    ("CASE WHEN 1 = 1 THEN CAST(1 AS decimal(38,10)) ELSE CAST(1 AS decimal(38,5)) END", D("1.00000"), "decimal(38,5)"),
    ("IIF(1 = 0, 'a', N'bb')", "bb", "nvarchar(2)"),
    ("IIF(1 = 1, 5, '7')", 5, "int"),
    ("ISNULL(CAST(NULL AS varchar(2)), 'abc')", "ab", "varchar(2)"),
    ("ISNULL(CAST(NULL AS decimal(5,2)), 1.239)", D("1.24"), "decimal(5,2)"),
    ("ISNULL(CAST(NULL AS int), '7')", 7, "int"),
    ("COALESCE(CAST(NULL AS varchar(2)), 'abc')", "abc", "varchar(3)"),
    ("COALESCE(1, 'x')", 1, "int"),
    ("NULLIF(5, 5)", None, "int"),
    ("CHOOSE(2, 'a', 'bb')", "bb", "varchar(2)"),
    ("CHOOSE(9, 'a', 'bb')", None, "varchar(2)"),
]
AGGREGATES = [
    ("AVG(x) FROM (VALUES (1), (2)) t(x)", 1, "int"),
    ("AVG(x) FROM (VALUES (1.0), (2.5)) t(x)", D("1.750000"), "decimal(38,6)"),
    ("AVG(x) FROM (VALUES ($1), ($2)) t(x)", D("1.5000"), "money"),
    ("AVG(CAST(x AS bigint)) FROM (VALUES (1), (2)) t(x)", 1, "bigint"),
    ("SUM(CAST(x AS tinyint)) FROM (VALUES (200), (100)) t(x)", 300, "int"),
    ("SUM(x) FROM (VALUES (1.5), (2.25)) t(x)", D("3.75"), "decimal(38,2)"),
    ("SUM(CAST(x AS real)) FROM (VALUES (1), (2)) t(x)", 3.0, "float"),
    ("SUM(CAST(x AS smallmoney)) FROM (VALUES (1), (2)) t(x)", D("3.0000"), "money"),
    ("COUNT(*) FROM (VALUES (1), (2)) t(x)", 2, "int"),
    ("COUNT_BIG(x) FROM (VALUES (1), (NULL)) t(x)", 1, "bigint"),
    ("MAX(x) FROM (VALUES ('a'), ('bb')) t(x)", "bb", "varchar(2)"),
    ("STDEV(x) FROM (VALUES (1), (3)) t(x)", 2**0.5, "float"),
    ("VARP(x) FROM (VALUES (1), (3)) t(x)", 1.0, "float"),
    ("ROW_NUMBER() OVER (ORDER BY x) FROM (VALUES (1)) t(x)", 1, "bigint"),
    ("SUM(x) FROM (VALUES (1)) t(x) WHERE x = 2", None, "int"),
]
CONVERSIONS = [
    ("CAST(12.7 AS int)", 12, "int"),
    ("CAST(-12.7 AS int)", -12, "int"),
    ("CAST(2.5e0 AS int)", 2, "int"),
    ("CAST('' AS int)", 0, "int"),
    ("CAST(' 12 ' AS int)", 12, "int"),
    ("CAST(2.345 AS decimal(5,2))", D("2.35"), "decimal(5,2)"),
    ("CAST(-2.345 AS decimal(5,2))", D("-2.35"), "decimal(5,2)"),
    ("CAST('1.5' AS decimal)", D("2"), "decimal(18,0)"),
    ("CAST('1e2' AS float)", 100.0, "float"),
    ("CAST('$1,234.5' AS money)", D("1234.5000"), "money"),
    ("CAST(1.23456 AS money)", D("1.2346"), "money"),
    ("CAST('true' AS bit)", True, "bit"),
    ("CAST(7 AS bit)", True, "bit"),
    ("CAST(12345 AS varchar(3))", "*", "varchar(3)"),
    ("CAST(123 AS char(5))", "123  ", "char(5)"),
    ("CAST('abcdef' AS varchar(3))", "abc", "varchar(3)"),
    ("CAST(1.50 AS varchar)", "1.50", "varchar(30)"),
    ("CAST($1234.5678 AS varchar(20))", "1234.57", "varchar(20)"),
    ("CONVERT(varchar(20), $1234.5678, 1)", "1,234.57", "varchar(20)"),
    ("CONVERT(varchar(20), $1234.5678, 2)", "1234.5678", "varchar(20)"),
    ("CAST(1234567e0 AS varchar(20))", "1.23457e+006", "varchar(20)"),
    ("CONVERT(varchar(30), 1.5e0, 1)", "1.5000000e+000", "varchar(30)"),
    ("CONVERT(varchar(30), 1.5e0, 2)", "1.500000000000000e+000", "varchar(30)"),
    ("CONVERT(varchar(20), 0x01AB, 1)", "0x01AB", "varchar(20)"),
    ("CONVERT(varchar(20), 0x01AB, 2)", "01AB", "varchar(20)"),
    ("CONVERT(varbinary(4), '0x01AB', 1)", b"\x01\xab", "varbinary(4)"),
    ("CONVERT(varbinary(4), '01AB', 2)", b"\x01\xab", "varbinary(4)"),
    ("CAST(258 AS binary(2))", b"\x01\x02", "binary(2)"),
    ("CAST($1 AS varbinary(8))", b"\0\0\0\0\0\0\x27\x10", "varbinary(8)"),
    ("CAST(1e0 AS binary(8))", b"\x3f\xf0\0\0\0\0\0\0", "binary(8)"),
    ("CAST(CAST('1900-01-02 00:00:01' AS datetime) AS binary(8))", b"\0\0\0\x01\0\0\x01\x2c", "binary(8)"),
    ("CAST(0x000000010000012C AS datetime)", datetime.datetime(1900, 1, 2, 0, 0, 1), "datetime"),
    ("CAST(0xFFFFFFFF AS int)", -1, "int"),
    ("CAST(0x AS int)", 0, "int"),
    ("CAST(0xFFFF AS int)", 65535, "int"),
    ("CAST(0x0180000000 AS int)", -(2**31), "int"),
    ("CAST(0xFFFF AS smallint)", -1, "smallint"),
    ("CAST(0x018000 AS smallint)", -(2**15), "smallint"),
    ("CAST(0x01FF AS tinyint)", 255, "tinyint"),
    ("CAST(0xFFFFFFFF AS bigint)", 2**32 - 1, "bigint"),
    ("CAST(0xFF8000000000000001 AS bigint)", 1 - 2**63, "bigint"),
    (
        "CAST('6F9619FF-8B86-D011-B42D-00C04FC964FF' AS uniqueidentifier)",
        UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"),
        "uniqueidentifier",
    ),
    (
        "CAST(CAST('6F9619FF-8B86-D011-B42D-00C04FC964FF' AS uniqueidentifier) AS binary(4))",
        b"\xff\x19\x96\x6f",
        "binary(4)",
    ),
    (
        "CAST(CAST('6f9619ff-8b86-d011-b42d-00c04fc964ff' AS uniqueidentifier) AS char(36))",
        "6F9619FF-8B86-D011-B42D-00C04FC964FF",
        "char(36)",
    ),
    ("CAST(45292.5 AS datetime)", datetime.datetime(2024, 1, 3, 12), "datetime"),
    ("CAST(CAST('2024-01-02 13:00' AS datetime) AS int)", 45292, "int"),
    ("CAST('2024-01-02 03:04:05.9996' AS datetime2(3))", datetime.datetime(2024, 1, 2, 3, 4, 6), "datetime2"),
    ("CAST('2024-01-02 03:04:30' AS smalldatetime)", datetime.datetime(2024, 1, 2, 3, 5), "smalldatetime"),
    ("CAST('2024-01-02 03:04:05.005' AS datetime)", datetime.datetime(2024, 1, 2, 3, 4, 5, 7000), "datetime"),
    ("CAST('13:14' AS time(0))", datetime.time(13, 14), "time"),
    ("CAST('2024-01-02T03:04:05' AS date)", datetime.date(2024, 1, 2), "date"),
    ("CAST('20240102 03:04:05' AS datetime)", _MOMENT, "datetime"),
    ("CAST('20240102 03:04:05:7' AS datetime)", datetime.datetime(2024, 1, 2, 3, 4, 5, 7000), "datetime"),
    ("CAST('20240102 03:04:05.7' AS datetime)", datetime.datetime(2024, 1, 2, 3, 4, 5, 700000), "datetime"),
    ("CAST('1/2/2024 3:04:05 AM' AS datetime)", _MOMENT, "datetime"),
    ("CAST('Jan 2 2024 3:04:05AM' AS datetime)", _MOMENT, "datetime"),
    ("CONVERT(date, '02/01/2024', 103)", datetime.date(2024, 1, 2), "date"),
    ("CONVERT(date, '02/01/2024', 101)", datetime.date(2024, 2, 1), "date"),
    ("CONVERT(datetime, '02.01.24', 4)", datetime.datetime(2024, 1, 2), "datetime"),
    ("CAST('2024-01-02T03:04:05Z' AS datetime)", _MOMENT, "datetime"),
    ("CAST(0.1e0 AS decimal(10,5))", D("0.10000"), "decimal(10,5)"),
    ("TRY_CAST('x' AS int)", None, "int"),
    ("TRY_CAST(300 AS tinyint)", None, "tinyint"),
    ("TRY_CONVERT(date, '2024-02-30')", None, "date"),
    ("TRY_CAST(123.45 AS varchar(3))", None, "varchar(3)"),
    ("TRY_CAST(CAST('1700-01-01' AS date) AS datetime)", None, "datetime"),
    ("TRY_PARSE('12' AS int)", 12, "int"),
]
_DATETIME = "CAST('2024-01-02 13:04:05.123' AS datetime)"
_DATETIME2 = "CAST('2024-01-02 03:04:05.1234560' AS datetime2(7))"
STYLES = [
    (_DATETIME, 0, "Jan  2 2024  1:04PM"),
    (_DATETIME, 1, "01/02/24"),
    (_DATETIME, 2, "24.01.02"),
    (_DATETIME, 3, "02/01/24"),
    (_DATETIME, 4, "02.01.24"),
    (_DATETIME, 5, "02-01-24"),
    (_DATETIME, 6, "02 Jan 24"),
    (_DATETIME, 7, "Jan 02, 24"),
    (_DATETIME, 8, "13:04:05"),
    (_DATETIME, 9, "Jan  2 2024  1:04:05:123PM"),
    (_DATETIME, 10, "01-02-24"),
    (_DATETIME, 11, "24/01/02"),
    (_DATETIME, 12, "240102"),
    (_DATETIME, 13, "02 Jan 2024 13:04:05:123"),
    (_DATETIME, 14, "13:04:05:123"),
    (_DATETIME, 20, "2024-01-02 13:04:05"),
    (_DATETIME, 21, "2024-01-02 13:04:05.123"),
    (_DATETIME, 22, "01/02/24  1:04:05 PM"),
    (_DATETIME, 23, "2024-01-02"),
    (_DATETIME, 24, "13:04:05"),
    (_DATETIME, 25, "2024-01-02 13:04:05.123"),
    (_DATETIME, 100, "Jan  2 2024  1:04PM"),
    (_DATETIME, 101, "01/02/2024"),
    (_DATETIME, 102, "2024.01.02"),
    (_DATETIME, 103, "02/01/2024"),
    (_DATETIME, 104, "02.01.2024"),
    (_DATETIME, 105, "02-01-2024"),
    (_DATETIME, 106, "02 Jan 2024"),
    (_DATETIME, 107, "Jan 02, 2024"),
    (_DATETIME, 108, "13:04:05"),
    (_DATETIME, 109, "Jan  2 2024  1:04:05:123PM"),
    (_DATETIME, 110, "01-02-2024"),
    (_DATETIME, 111, "2024/01/02"),
    (_DATETIME, 112, "20240102"),
    (_DATETIME, 113, "02 Jan 2024 13:04:05:123"),
    (_DATETIME, 114, "13:04:05:123"),
    (_DATETIME, 120, "2024-01-02 13:04:05"),
    (_DATETIME, 121, "2024-01-02 13:04:05.123"),
    (_DATETIME, 126, "2024-01-02T13:04:05.123"),
    (_DATETIME, 127, "2024-01-02T13:04:05.123Z"),
    ("CAST('2024-01-02 03:04' AS smalldatetime)", 121, "2024-01-02 03:04:00.000"),
    ("CAST('2024-01-02 03:04:05' AS datetime)", 126, "2024-01-02T03:04:05"),
    (_DATETIME2, 121, "2024-01-02 03:04:05.1234560"),
    (_DATETIME2, 109, "Jan  2 2024  3:04:05.1234560AM"),
    (_DATETIME2, 126, "2024-01-02T03:04:05.1234560"),
    ("CAST('2024-01-02' AS date)", 103, "02/01/2024"),
    ("CAST('2024-01-02' AS date)", 121, "2024-01-02"),
    ("CAST('13:04:05.5' AS time(1))", 0, " 1:04PM"),
    ("CAST('13:04:05.5' AS time(1))", 108, "13:04:05"),
    ("CAST('13:04:05.5' AS time(1))", 114, "13:04:05.5"),
    ("CAST('2024-01-02 03:04:05.5 +02:00' AS datetimeoffset(1))", 121, "2024-01-02 03:04:05.5 +02:00"),
    ("CAST('2024-01-02 03:04:05.5 +02:00' AS datetimeoffset(1))", 127, "2024-01-02T01:04:05.5Z"),
]
ERRORS = [
    ("1 / 0", 8134),
    ("1.0 / 0", 8134),
    ("1e0 / 0", 8134),
    ("2147483647 + 1", 8115),
    ("CAST(9223372036854775807 AS bigint) + 1", 8115),
    ("CAST(32767 AS smallint) + CAST(1 AS smallint)", 8115),
    ("CAST(255 AS tinyint) + CAST(1 AS tinyint)", 8115),
    ("CAST(1 AS bit) + CAST(1 AS bit)", 8117),
    ("1e308 * 10", 8115),
    ("5e0 % 2", 402),
    ("5 & 3.0", 402),
    ("'a' - 'b'", 8117),
    ("CAST(GETDATE() AS date) + 1", 206),
    ("SUM(x) FROM (VALUES (2147483647), (1)) t(x)", 8115),
    ("SUM(x) FROM (VALUES ('1')) t(x)", 8117),
    ("CAST('abc' AS int)", 245),
    ("'abc' + 1", 245),
    ("CAST('1.5' AS int)", 245),
    ("CAST('99999999999' AS int)", 248),
    ("CAST('300' AS tinyint)", 244),
    ("CAST(300 AS tinyint)", 220),
    ("CAST(70000 AS smallint)", 220),
    ("CAST(1e10 AS int)", 232),
    ("CAST('abc' AS bigint)", 8114),
    ("CAST('abc' AS decimal(5,2))", 8114),
    ("CAST('abc' AS float)", 8114),
    ("CAST('12345' AS decimal(5,2))", 8115),
    ("CAST(12345 AS decimal(5,2))", 8115),
    ("CAST(12345 AS nvarchar(3))", 8115),
    ("CAST(123.45 AS varchar(3))", 8115),
    ("CAST($123.45 AS varchar(3))", 234),
    ("CAST(NEWID() AS char(10))", 8170),
    ("CAST(999999999999999.0 AS money)", 8115),
    ("CAST('x' AS money)", 235),
    ("CAST('x' AS uniqueidentifier)", 8169),
    ("CAST('x' AS date)", 241),
    ("CAST('2024-02-30' AS date)", 241),
    ("CAST('x' AS datetime)", 241),
    ("CAST('2024-01-02 03:04:05.1234567' AS datetime)", 241),
    ("CAST('2024-02-30' AS datetime)", 242),
    ("CAST('20240230' AS datetime)", 242),
    ("CAST('1700-01-01' AS datetime)", 242),
    ("CAST(CAST('1700-01-01' AS date) AS datetime)", 242),
    ("CAST(1 AS date)", 529),
    ("CAST(GETDATE() AS uniqueidentifier)", 529),
    ("CONVERT(varchar(20), GETDATE(), 99)", 281),
    ("ROUND(999.99, -3)", 8115),
    ("POWER(10, 10)", 232),
    ("SQRT(-1)", 3623),
    ("LOG(0)", 3623),
    ("ABS(CAST(-2147483648 AS int))", 8115),
    ("DATEADD(year, 9000, GETDATE())", 517),
    ("DATEADD(hour, 1, CAST(GETDATE() AS date))", 9810),
    ("DATEDIFF(millisecond, '1900-01-01', '2024-01-01')", 535),
    ("CASE WHEN 1 = 0 THEN 1 ELSE 'x' END", 245),
    ("1 WHERE CAST(GETDATE() AS date) = 1", 206),
]


@pytest.mark.parametrize(("expression", "value", "type"), [*ARITHMETIC, *AGGREGATES, *CONVERSIONS])
def test_expression_has_the_servers_value_and_type(sql: Client, expression: str, value: object, type: str) -> None:
    result = sql.result(f"SELECT {expression}")
    found = result.rows[0][0]
    assert found == (pytest.approx(value) if isinstance(value, float) else value)
    assert _plain(result.types[0]) == _plain(type)


def _plain(type: str) -> str:
    """decimal and numeric are two words for one type."""
    return type.replace("numeric", "decimal")


@pytest.mark.parametrize(("expression", "style", "text"), STYLES)
def test_style_writes_a_moment_as_the_server_does(sql: Client, expression: str, style: int, text: str) -> None:
    assert sql.scalar(f"CONVERT(varchar(40), {expression}, {style})") == text


@pytest.mark.parametrize(("expression", "number"), ERRORS)
def test_impossible_expression_is_the_servers_error(sql: Client, expression: str, number: int) -> None:
    assert sql.error(f"SELECT {expression}").number == number


@pytest.mark.parametrize(
    ("value", "column", "number"),
    [
        ("300", "tinyint", 220),
        ("70000", "smallint", 220),
        ("3000000000", "int", 8115),
        ("1234.5", "decimal(4,1)", 8115),
    ],
)
def test_number_too_great_for_its_column_is_refused(sql: Client, value: str, column: str, number: int) -> None:
    assert sql.error(f"DECLARE @t TABLE (x {column}); INSERT @t VALUES ({value})").number == number


@pytest.mark.parametrize(
    ("batch", "value"),
    [
        ("DECLARE @d datetime = '2024-01-02', @v varchar(30); SET @v = @d; SELECT @v", "Jan  2 2024 12:00AM"),
        ("DECLARE @f float = 1234567; DECLARE @v varchar(30) = @f; SELECT @v", "1.23457e+006"),
        ("DECLARE @m money = 1234.5678; DECLARE @v varchar(30) = @m; SELECT @v", "1234.57"),
        ("DECLARE @v varchar(3) = 12345; SELECT @v", "*"),
        ("DECLARE @v varchar(3) = 'abcdef'; SELECT @v", "abc"),
        ("DECLARE @d datetime = '1/2/2024 3:04:05 AM'; SELECT @d", _MOMENT),
        ("DECLARE @d date = 'Jan 2 2024'; SELECT @d", datetime.date(2024, 1, 2)),
        ("DECLARE @i int = 1.9; SELECT @i", 1),
        ("DECLARE @n numeric(5,2) = '1.239'; SELECT @n / 3", D("0.413333")),
    ],
)
def test_value_assigned_to_a_variable_is_converted_as_by_the_server(sql: Client, batch: str, value: object) -> None:
    assert sql.rows(batch) == [(value,)]
