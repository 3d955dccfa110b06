"""Casts of values: every value of a type has one of the other, and NULL stays NULL."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.settings import Cast
from floodmark.sync.columns import cast_values

MOMENT = pa.timestamp("us")


@pytest.mark.parametrize(
    ("value", "kind", "cast", "expected"),
    [
        (-32768, pa.int16(), Cast.INT, -32768),
        (2147483647, pa.int32(), Cast.BIGINT, 2147483647),
        (-12, pa.int64(), Cast.TEXT, "-12"),
        (True, pa.bool_(), Cast.TEXT, "1"),
        (Decimal("0.0000000"), pa.decimal128(9, 7), Cast.TEXT, "0.0000000"),
        (Decimal(f"-0.{'9' * 38}"), pa.decimal128(38, 38), Cast.TEXT, f"-0.{'9' * 38}"),
        ("6F9619FF-8B86-D011-B42D-00C04FC964FF", pa.string(), Cast.TEXT, "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
        (date(1, 1, 1), pa.date32(), Cast.TEXT, "0001-01-01"),
        (datetime(2026, 1, 31, 12), MOMENT, Cast.TEXT, "2026-01-31 12:00:00.000000"),
        ("2026-01-31 12:00:00.1234567", pa.string(), Cast.TEXT, "2026-01-31 12:00:00.1234567"),
        ("0001-01-01 23:59:59.9999999", pa.string(), Cast.DATE, date(1, 1, 1)),
        (date(2026, 1, 31), pa.date32(), Cast.DATE, date(2026, 1, 31)),
    ],
)
def test_value_has_one_in_the_other_type(value: Any, kind: pa.DataType, cast: Cast, expected: Any) -> None:
    assert cast_values(pa.array([value, None, value], kind), cast).to_pylist() == [expected, None, expected]


@given(st.lists(st.datetimes()))
def test_day_of_a_moment_is_its_day_in_every_year(moments: list[datetime]) -> None:
    assert cast_values(pa.array(moments, MOMENT), Cast.DATE).to_pylist() == [moment.date() for moment in moments]
