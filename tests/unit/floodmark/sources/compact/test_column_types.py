"""Declared types of SQLite become types of the source, and values that do not fit them are refused, not changed."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from floodmark.sources.compact.tables import ValueRefusedError, converter, source_column

GUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("INTEGER", "bigint"),
        ("smallint", "bigint"),
        ("BIT", "bit"),
        ("nvarchar(100)", "nvarchar"),
        ("", "nvarchar"),
        ("decimal(9, 2)", "decimal(9,2)"),
        ("NUMERIC", "nvarchar"),
        ("decimal(99,2)", "nvarchar"),
        ("money", "decimal(19,4)"),
        ("double precision", "float"),
        ("uniqueidentifier ROWGUIDCOL", "uniqueidentifier"),
        ("datetime", "datetime2(6)"),
        ("varbinary(20)", "varbinary"),
    ],
)
def test_declared_type_decides(declared: str, expected: str) -> None:
    assert source_column("c", declared, 1, nullable=True).declared_type == expected


@pytest.mark.parametrize(
    ("declared", "stored", "value"),
    [
        ("int", 2**63 - 1, 2**63 - 1),
        ("bit", 1, True),
        ("text", "é", "é"),
        ("", 7, "7"),
        ("decimal(9,2)", 1.1, Decimal("1.10")),
        ("decimal(9,2)", 3, Decimal("3.00")),
        ("decimal(38,2)", "123456789012345678901234567890.12", Decimal("123456789012345678901234567890.12")),
        ("float", 1, 1.0),
        ("blob", "a", b"a"),
        ("guid", bytes.fromhex("ff19966f868b11d0b42d00c04fc964ff"), "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
        ("guid", "{" + GUID.upper() + "}", GUID),
        ("datetime", "2026-01-02 03:04:05.5", datetime(2026, 1, 2, 3, 4, 5, 500000)),
        ("datetime", "2026-01-02T03:04:05+01:00", datetime(2026, 1, 2, 2, 4, 5)),
        ("date", "2026-01-02", date(2026, 1, 2)),
    ],
)
def test_values_that_fit_arrive(declared: str, stored: Any, value: Any) -> None:
    convert = converter(source_column("c", declared, 1, nullable=True))
    assert convert(stored) == value
    assert convert(None) is None


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        ("int", "7"),
        ("int", 1.5),
        ("bit", 2),
        ("bit", 1.0),
        ("decimal(9,2)", 1.234),
        ("decimal(3,2)", 12.34),
        ("decimal(9,2)", float("inf")),
        ("decimal(9,2)", b"1"),
        ("float", "1"),
        ("text", b"a"),
        ("text", "\udcff"),
        ("blob", 1),
        ("guid", "no guid"),
        ("guid", b"short"),
        ("datetime", 1767322800),
        ("datetime", "yesterday"),
        ("date", "2026-01-02 10:00:00"),
    ],
)
def test_values_that_do_not_fit_are_refused_without_being_named(declared: str, stored: Any) -> None:
    with pytest.raises(ValueRefusedError, match="column c has a value") as caught:
        converter(source_column("c", declared, 1, nullable=True))(stored)
    assert repr(stored) not in str(caught.value)
