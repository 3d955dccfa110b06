"""Built-in functions: values and types as https://learn.microsoft.com/sql/t-sql/functions documents them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conformance_server import Client

D = Decimal
_EAST = datetime.timezone(datetime.timedelta(hours=2))

TEXTS = [
    ("ASCII('A')", 65, "int"),
    ("CHAR(65)", "A", "char(1)"),
    ("CHARINDEX('b', 'abcb', 3)", 4, "int"),
    ("CHARINDEX('', 'abc')", 0, "int"),
    ("CHARINDEX('b', CAST('abc' AS varchar(max)))", 2, "bigint"),
    ("LEN('abc  ')", 3, "int"),
    ("LEN(N'😀')", 2, "int"),
    ("LEN(0x010203)", 3, "int"),
    ("LEN(CAST('abc' AS varchar(max)))", 3, "bigint"),
    ("LEN(REPLICATE('a', 9000))", 8000, "int"),
    ("LEN(REPLICATE(CAST('a' AS varchar(max)), 9000))", 9000, "bigint"),
    ("DATALENGTH(N'abc')", 6, "int"),
    ("DATALENGTH('abc  ')", 5, "int"),
    ("DATALENGTH(CAST(1 AS decimal(30,2)))", 17, "int"),
    ("DATALENGTH(CAST(GETDATE() AS datetime2(3)))", 7, "int"),
    ("LEFT('hello', 2)", "he", "varchar(5)"),
    ("RIGHT(N'hello', 2)", "lo", "nvarchar(5)"),
    ("SUBSTRING('hello', 0, 3)", "he", "varchar(5)"),
    ("REPLACE('aXbX', 'X', 'y')", "ayby", "varchar(8000)"),
    ("STUFF('abcdef', 2, 3, 'X')", "aXef", "varchar(8000)"),
    ("STUFF('abc', 9, 1, 'X')", None, "varchar(8000)"),
    ("TRANSLATE('2*[3+4]', '[]', '()')", "2*(3+4)", "varchar(8000)"),
    ("TRIM('  a ') + '|'", "a|", "varchar(5)"),
    ("TRIM('.,' FROM ',.a.,')", "a", "varchar(5)"),
    ("LTRIM('  a')", "a", "varchar(3)"),
    ("UPPER('aé')", "AÉ", "varchar(2)"),
    ("REVERSE('abc')", "cba", "varchar(3)"),
    ("STR(123.456, 8, 2)", "  123.46", "varchar(8000)"),
    ("STR(123456, 3)", "***", "varchar(8000)"),
    ("QUOTENAME('a]b')", "[a]]b]", "nvarchar(258)"),
    ("PATINDEX('%[0-9]%', 'ab3c')", 3, "int"),
    ("CONCAT_WS(',', 'a', NULL, 2)", "a,2", None),
    ("CONCAT('a', NULL, 1, CAST(1.5 AS decimal(5,2)))", "a11.50", None),
    ("STRING_ESCAPE('a\"/b', 'json')", 'a\\"\\/b', "nvarchar(max)"),
    ("HASHBYTES('MD5', 'a')", bytes.fromhex("0cc175b9c0f1b6a831c399e269772661"), "varbinary(8000)"),
    ("value FROM STRING_SPLIT('a', ',')", "a", "varchar(8000)"),
    ("value FROM STRING_SPLIT(N'a', N',')", "a", "nvarchar(4000)"),
    ("IIF('50%' LIKE '50!%' ESCAPE '!', 1, 0)", 1, "int"),
    ("IIF('a_c' LIKE 'a[_]c', 1, 0)", 1, "int"),
    ("IIF('b' LIKE '[^a-c]', 1, 0)", 0, "int"),
]
NUMBERS = [
    ("ABS(-5.5)", D("5.5"), "decimal(2,1)"),
    ("CEILING(1.2)", D("2"), "decimal(2,0)"),
    ("CEILING($123.45)", D("124.0000"), "money"),
    ("FLOOR(-123.45)", D("-124"), "decimal(5,0)"),
    ("ROUND(123.456, 2)", D("123.460"), "decimal(6,3)"),
    ("ROUND(150.75, 0, 1)", D("150.00"), "decimal(5,2)"),
    ("ROUND(150, -2)", 200, "int"),
    ("ROUND(CAST(5 AS tinyint), 0)", 5, "int"),
    ("POWER(2, 10)", 1024, "int"),
    ("POWER(2, -1)", 0, "int"),
    ("POWER(2.0, 3)", D("8.0"), "decimal(38,1)"),
    ("SQUARE(3)", 9.0, "float"),
    ("SIGN(-2.5e0)", -1.0, "float"),
    ("DEGREES(PI())", 180.0, "float"),
    ("DEGREES(1)", 57, "int"),
    ("LOG(8, 2)", 3.0, "float"),
    ("GREATEST(1, 2, 3)", 3, "int"),
    ("LEFT_SHIFT(1, 31)", -2147483648, "int"),
    ("RIGHT_SHIFT(-1, 1)", 2147483647, "int"),
    ("BIT_COUNT(7)", 3, "bigint"),
    ("GET_BIT(4, 2)", True, "bit"),
    ("ISNUMERIC('1e5')", 1, "int"),
    ("ISNUMERIC('.')", 1, "int"),
    ("ISNUMERIC('1a')", 0, "int"),
    ("IIF(NULL IS NOT DISTINCT FROM NULL, 1, 0)", 1, "int"),
    ("IIF(1 IS DISTINCT FROM NULL, 1, 0)", 1, "int"),
    ("MAX(value) FROM GENERATE_SERIES(1, 5, 2)", 5, "int"),
]
_SEVEN = "CAST('2007-01-01 13:10:10.1111111' AS datetime2)"
DATES = [
    *(
        (f"CONVERT(varchar(40), {expression})", text, "varchar(40)")
        for expression, text in (
            (_SEVEN, "2007-01-01 13:10:10.1111111"),
            (f"DATEADD(nanosecond, 49, {_SEVEN})", "2007-01-01 13:10:10.1111111"),
            (f"DATEADD(nanosecond, 50, {_SEVEN})", "2007-01-01 13:10:10.1111112"),
            (f"DATEADD(microsecond, 1, {_SEVEN})", "2007-01-01 13:10:10.1111121"),
            (f"DATEADD(month, 1, {_SEVEN})", "2007-02-01 13:10:10.1111111"),
            (f"DATETRUNC(microsecond, {_SEVEN})", "2007-01-01 13:10:10.1111110"),
            ("CAST('2007-01-01 13:10:10.1234995' AS datetime2(3))", "2007-01-01 13:10:10.123"),
            ("CAST('2007-01-01 13:10:10.1234995' AS datetime2(6))", "2007-01-01 13:10:10.123500"),
            ("CAST('2007-01-01 13:10:10.1111111 +02:00' AS datetimeoffset)", "2007-01-01 13:10:10.1111111 +02:00"),
            ("CAST('2007-01-01 13:10:10.15 +02:00' AS datetimeoffset(1))", "2007-01-01 13:10:10.2 +02:00"),
            ("CAST('23:59:59.9999999' AS time)", "23:59:59.9999999"),
            (f"CAST({_SEVEN} AS time)", "13:10:10.1111111"),
            ("TIMEFROMPARTS(1, 2, 3, 4, 7)", "01:02:03.0000004"),
            ("DATETIME2FROMPARTS(2007, 1, 1, 1, 2, 3, 4, 7)", "2007-01-01 01:02:03.0000004"),
            (f"SWITCHOFFSET(TODATETIMEOFFSET({_SEVEN}, '+02:00'), '-01:30')", "2007-01-01 09:40:10.1111111 -01:30"),
        )
    ),
    (f"DATEPART(nanosecond, {_SEVEN})", 111_111_100, "int"),
    (f"DATEPART(microsecond, {_SEVEN})", 111_111, "int"),
    (f"DATEDIFF(nanosecond, {_SEVEN}, '2007-01-01 13:10:10.1111112')", 100, "int"),
    (f"DATEDIFF(microsecond, {_SEVEN}, '2007-01-01 13:10:10.1111120')", 1, "int"),
    (f"FORMAT({_SEVEN}, 'fffffff')", "1111111", "nvarchar(4000)"),
    (f"CASE WHEN {_SEVEN} = '2007-01-01 13:10:10.1111112' THEN 1 ELSE 0 END", 0, "int"),
    (f"CASE WHEN {_SEVEN} < CAST('2007-01-01 13:10:10.1111112' AS datetime2) THEN 1 ELSE 0 END", 1, "int"),
    ("DATEDIFF(nanosecond, CAST(SYSUTCDATETIME() AS datetime2(7)), SYSUTCDATETIME())", 0, "int"),
    ("DATEADD(month, 1, '2024-01-31')", datetime.datetime(2024, 2, 29), "datetime"),
    ("DATEADD(day, 1, CAST('2024-01-31' AS date))", datetime.date(2024, 2, 1), "date"),
    ("DATEADD(minute, -1, CAST('00:00' AS time(0)))", datetime.time(23, 59), "time"),
    ("DATEADD(day, 1.9, CAST('2024-01-01' AS date))", datetime.date(2024, 1, 2), "date"),
    ("DATEDIFF(year, '2023-12-31', '2024-01-01')", 1, "int"),
    ("DATEDIFF(week, '2024-01-06', '2024-01-07')", 1, "int"),
    ("DATEDIFF(hour, '2024-01-01 00:59', '2024-01-01 01:00')", 1, "int"),
    ("DATEDIFF(day, '2024-01-02', '2024-01-01')", -1, "int"),
    ("DATEDIFF_BIG(microsecond, '2024-01-01', '2024-01-02')", 86_400_000_000, "bigint"),
    ("DATENAME(weekday, '2024-01-31')", "Wednesday", "nvarchar(30)"),
    ("DATEPART(iso_week, '2024-12-30')", 1, "int"),
    ("DATEPART(week, '2024-01-07')", 2, "int"),
    ("DATEPART(weekday, '2024-01-07')", 1, "int"),
    ("DATEPART(nanosecond, CAST('2024-01-07 00:00:00.123456' AS datetime2))", 123_456_000, "int"),
    ("DATETRUNC(month, CAST('2024-01-31' AS date))", datetime.date(2024, 1, 1), "date"),
    ("EOMONTH('2024-01-31', 1)", datetime.date(2024, 2, 29), "date"),
    ("DATEFROMPARTS(2024, 2, 29)", datetime.date(2024, 2, 29), "date"),
    ("DATETIMEFROMPARTS(2024, 2, 3, 4, 5, 6, 7)", datetime.datetime(2024, 2, 3, 4, 5, 6, 7000), "datetime"),
    ("TIMEFROMPARTS(23, 59, 58, 5, 1)", datetime.time(23, 59, 58, 500000), "time"),
    ("ISDATE('2024-02-30')", 0, "int"),
    (
        "SWITCHOFFSET(CAST('2024-01-02 03:04 +00:00' AS datetimeoffset(0)), '+02:00')",
        datetime.datetime(2024, 1, 2, 5, 4, tzinfo=_EAST),
        "datetimeoffset",
    ),
    (
        "CAST('2024-07-02 03:04' AS datetime2(0)) AT TIME ZONE 'W. Europe Standard Time'",
        datetime.datetime(2024, 7, 2, 3, 4, tzinfo=_EAST),
        "datetimeoffset",
    ),
    (
        "CONVERT(varchar(40), CAST('2024-01-02 03:04 +00:00' AS datetimeoffset(0)) AT TIME ZONE 'Tokyo Standard Time')",
        "2024-01-02 12:04:00 +09:00",
        "varchar(40)",
    ),
]
_NOON = "CAST('2024-01-02 13:04:05.123' AS datetime)"
FORMATS = [
    (f"FORMAT({_NOON}, 'yyyy-MM-dd HH:mm:ss.fff')", "2024-01-02 13:04:05.123", "nvarchar(4000)"),
    (f"FORMAT({_NOON}, 'd')", "1/2/2024", "nvarchar(4000)"),
    (f"FORMAT({_NOON}, 'D', 'en-US')", "Tuesday, January 2, 2024", "nvarchar(4000)"),
    (f"FORMAT({_NOON}, 'ddd d MMM, h:mm tt')", "Tue 2 Jan, 1:04 PM", "nvarchar(4000)"),
    (f"FORMAT({_NOON}, 'q')", None, "nvarchar(4000)"),
    ("FORMAT(1234.5, 'N2')", "1,234.50", "nvarchar(4000)"),
    ("FORMAT(-1234.567, 'C')", "($1,234.57)", "nvarchar(4000)"),
    ("FORMAT(0.256, 'P1')", "25.6 %", "nvarchar(4000)"),
    ("FORMAT(42, 'D5')", "00042", "nvarchar(4000)"),
    ("FORMAT(1234567.891, '#,##0.00')", "1,234,567.89", "nvarchar(4000)"),
    ("FORMAT(-7, '000')", "-007", "nvarchar(4000)"),
    ("FORMAT(0.5, '#.##')", ".5", "nvarchar(4000)"),
]
VARIANTS = [
    ("SERVERPROPERTY('EngineEdition')", 3, "sql_variant"),
    ("SERVERPROPERTY('NoSuchProperty')", None, "sql_variant"),
    ("DATABASEPROPERTYEX('master', 'Status')", "ONLINE", "sql_variant"),
    ("CAST(SERVERPROPERTY('EngineEdition') AS int)", 3, "int"),
    ("IIF(SERVERPROPERTY('EngineEdition') = 3, 'yes', 'no')", "yes", "varchar(3)"),
    ("1 FROM (SELECT SERVERPROPERTY('EngineEdition') AS x) t WHERE x = 3", 1, "int"),
]
ERRORS = [
    ("LEFT('abc', -1)", 537),
    ("SUBSTRING('abc', 1, -1)", 537),
    ("RIGHT('abc', -1)", 536),
    ("DATEFROMPARTS(2024, 2, 30)", 289),
    ("TIMEFROMPARTS(25, 0, 0, 0, 0)", 289),
    ("DATEPART(hour, CAST('2024-01-01' AS date))", 9810),
    ("GETDATE() AT TIME ZONE 'Nowhere'", 9820),
    ("NO_SUCH_FUNCTION(1)", 195),
    ("LEN()", 174),
    ("FORMAT('x', 'N')", 8116),
    ("DATEADD(nonsense, 1, GETDATE())", 155),
]


@pytest.mark.parametrize(("expression", "value", "type"), [*TEXTS, *NUMBERS, *DATES, *FORMATS, *VARIANTS])
def test_function_has_the_servers_value_and_type(sql: Client, expression: str, value: object, type: str | None) -> None:
    result = sql.result(f"SELECT {expression}")
    assert result.rows[0][0] == (pytest.approx(value) if isinstance(value, float) else value)
    assert type is None or result.types[0].replace("numeric", "decimal") == type


@pytest.mark.parametrize(("expression", "number"), ERRORS)
def test_wrong_argument_is_the_servers_error(sql: Client, expression: str, number: int) -> None:
    assert sql.error(f"SELECT {expression}").number == number
