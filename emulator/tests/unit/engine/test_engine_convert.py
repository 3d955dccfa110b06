"""Assignment to a variable converts like SQL Server does: rounding, truncation, and the errors by number."""

from __future__ import annotations

import datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.engine.values.convert import convert, to_datetime_ticks
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import MAX_LENGTH, TsqlType

GUID = UUID("0e984725-c51c-4bf4-9960-e1c80e27aba0")
NOON = datetime.datetime(2024, 2, 29, 12, 34, 56, 789123)


@pytest.mark.parametrize(
    ("value", "to", "expected"),
    [
        (None, TsqlType("int"), None),
        ("12", TsqlType("int"), 12),
        (Decimal("2.9"), TsqlType("int"), 2),
        (-2.9, TsqlType("bigint"), -2),
        ("true", TsqlType("bit"), True),
        (5, TsqlType("bit"), True),
        ("1.005", TsqlType("decimal", precision=5, scale=2), Decimal("1.01")),
        (-1.005, TsqlType("decimal", precision=5, scale=1), Decimal("-1.0")),
        ("$12.34567", TsqlType("money"), Decimal("12.3457")),
        ("abcdef", TsqlType("nvarchar", 3), "abc"),
        ("ab", TsqlType("char", 4), "ab  "),
        (7, TsqlType("varchar", 10), "7"),
        ("long", TsqlType("nvarchar", MAX_LENGTH), "long"),
        (GUID, TsqlType("nvarchar", 36), "0E984725-C51C-4BF4-9960-E1C80E27ABA0"),
        ("{0e984725-c51c-4bf4-9960-e1c80e27aba0}", TsqlType("uniqueidentifier"), GUID),
        (GUID, TsqlType("binary", 16), GUID.bytes_le),
        (b"\x01", TsqlType("binary", 3), b"\x01\0\0"),
        (1, TsqlType("binary", 6), b"\0\0\0\0\0\x01"),
        (b"\x01\x02\x03", TsqlType("varbinary", 2), b"\x01\x02"),
        ("2024-02-29", TsqlType("date"), datetime.date(2024, 2, 29)),
        (NOON, TsqlType("date"), datetime.date(2024, 2, 29)),
        ("2024-02-29T12:34:56.789123", TsqlType("datetime2", scale=7), NOON),
        (NOON, TsqlType("datetime2", scale=0), datetime.datetime(2024, 2, 29, 12, 34, 57)),
        (NOON, TsqlType("datetime"), datetime.datetime(2024, 2, 29, 12, 34, 56, 790000)),
        (NOON, TsqlType("smalldatetime"), datetime.datetime(2024, 2, 29, 12, 35)),
        (NOON, TsqlType("time", scale=3), datetime.time(12, 34, 56, 789000)),
        ("12:34:56", TsqlType("time", scale=0), datetime.time(12, 34, 56)),
    ],
)
def test_values_convert(value: object, to: TsqlType, expected: object) -> None:
    assert convert(value, to) == expected


@pytest.mark.parametrize(
    ("value", "to", "number"),
    [
        ("x", TsqlType("int"), 245),
        ("99999999999", TsqlType("int"), 248),
        (2**31, TsqlType("int"), 8115),
        (300, TsqlType("tinyint"), 220),
        ("x", TsqlType("decimal", precision=5, scale=2), 8114),
        ("NaN", TsqlType("float"), 8114),
        ("inf", TsqlType("real"), 8114),
        ("1_0", TsqlType("float"), 8114),
        ("1e400", TsqlType("float"), 8114),
        (1000, TsqlType("decimal", precision=5, scale=2), 8115),
        (10**18, TsqlType("money"), 8115),
        ("no guid", TsqlType("uniqueidentifier"), 8169),
        ("2024-13-01", TsqlType("date"), 241),
        (datetime.datetime(1752, 1, 1), TsqlType("datetime"), 242),
        (GUID, TsqlType("int"), 206),
    ],
)
def test_what_does_not_fit_is_refused_by_number(value: object, to: TsqlType, number: int) -> None:
    with pytest.raises(SqlServerError) as refused:
        convert(value, to)
    assert refused.value.number == number


@given(st.datetimes(min_value=datetime.datetime(1753, 1, 1), max_value=datetime.datetime(9999, 12, 31)))
def test_datetime_ends_in_0_3_or_7_milliseconds(moment: datetime.datetime) -> None:
    rounded = to_datetime_ticks(moment)
    assert rounded.microsecond % 1000 == 0
    assert rounded.microsecond // 1000 % 10 in (0, 3, 7)
    assert abs(rounded - moment) <= datetime.timedelta(microseconds=2100)
    assert to_datetime_ticks(rounded) == rounded


def test_an_offset_is_kept_in_datetimeoffset() -> None:
    value = convert("2024-01-01 10:00:00 +02:00", TsqlType("datetimeoffset", scale=7))
    assert isinstance(value, datetime.datetime)
    assert value.utcoffset() == datetime.timedelta(hours=2)
