"""Rows from tuples and from Arrow: the same bytes, whatever the types, the NULLs and the slices."""

from __future__ import annotations

import struct
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.tds import arrow_rows
from sqlserver_emulator.tds.arrow_rows import ArrowRowEncoder
from sqlserver_emulator.tds.rows import RowEncoder
from sqlserver_emulator.tds.values import ValueTooLongError, cell_encoder
from sqlserver_emulator.types import INT, TsqlType
from tds_strategies import PATIENT, TYPES, arrow_column, values_of


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[TsqlType], list[list[Any]], bool]:
    types = draw(st.lists(TYPES, min_size=1, max_size=6))
    row_count = draw(st.integers(1, 9))
    columns = []
    for type_ in types:
        values = values_of(type_)
        cells = draw(st.sampled_from([values, st.one_of(st.none(), values), st.none()]))
        columns.append(draw(st.lists(cells, min_size=row_count, max_size=row_count)))
    return types, columns, draw(st.booleans())


@PATIENT
@given(tables())
def test_arrow_rows_are_the_bytes_of_tuple_rows(table: tuple[list[TsqlType], list[list[Any]], bool]) -> None:
    types, columns, as_text = table
    arrays = [arrow_column(type_, column, as_text=as_text) for type_, column in zip(types, columns, strict=True)]
    batch = pa.record_batch(arrays, names=[f"c{i}" for i in range(len(types))])
    rows = list(zip(*columns, strict=True))
    assert b"".join(ArrowRowEncoder(types).encode(batch)) == RowEncoder(types).encode(rows)


@PATIENT
@given(tables(), st.integers(1, 4), st.integers(0, 3))
def test_arrow_rows_do_not_depend_on_slices(
    table: tuple[list[TsqlType], list[list[Any]], bool], slice_rows: int, offset: int
) -> None:
    types, columns, as_text = table
    arrays = [arrow_column(type_, column, as_text=as_text) for type_, column in zip(types, columns, strict=True)]
    batch = pa.record_batch(arrays, names=[f"c{i}" for i in range(len(types))]).slice(offset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_rows, "_SLICE_ROWS", slice_rows)
        sliced = b"".join(ArrowRowEncoder(types).encode(batch))
    assert sliced == RowEncoder(types).encode(list(zip(*columns, strict=True))[offset:])


def test_rows_of_numbers_are_packed_with_their_lengths() -> None:
    encoder = RowEncoder([INT, TsqlType("bit"), TsqlType("bigint")])
    assert encoder.encode([(1, True, 2), (None, False, 3)]) == (
        b"\xd1" + struct.pack("<BiBBBq", 4, 1, 1, 1, 8, 2) + b"\xd1\x00" + struct.pack("<BBBq", 1, 0, 8, 3)
    )


def test_a_null_under_bytes_of_an_arrow_column_is_empty() -> None:
    offsets, data = pa.py_buffer(struct.pack("<3i", 0, 3, 5)), pa.py_buffer(b"abcde")
    array = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x02"), offsets, data], 1)
    types = [TsqlType("nvarchar", 10)]
    batch = pa.record_batch([array], names=["c"])
    assert b"".join(ArrowRowEncoder(types).encode(batch)) == RowEncoder(types).encode([(None,), ("de",)])


@pytest.mark.parametrize("type_", [TsqlType("nvarchar", 2), TsqlType("varbinary", 2)], ids=str)
def test_a_value_longer_than_its_announced_type_is_refused(type_: TsqlType) -> None:
    value: object = "abc" if type_.name == "nvarchar" else b"abc"
    with pytest.raises(ValueTooLongError):
        RowEncoder([type_]).encode([(value,)])
    with pytest.raises(ValueTooLongError):
        list(ArrowRowEncoder([type_]).encode(pa.record_batch([pa.array([value])], names=["c"])))


def test_a_decimal_beyond_its_precision_is_refused() -> None:
    with pytest.raises(ValueTooLongError):
        cell_encoder(TsqlType("decimal", precision=5, scale=2))(Decimal(1000))


@pytest.mark.parametrize(
    ("moment", "days", "ticks"),
    [
        (datetime(1900, 1, 1), 0, 0),
        (datetime(1899, 12, 31, 0, 0, 0, 3000), -1, 1),
        (datetime(2024, 1, 1, 23, 59, 59, 997000), 45290, 25919999),
        (datetime(2024, 1, 1, 23, 59, 59, 999000), 45291, 0),
    ],
)
def test_datetime_counts_three_hundredths_of_a_second(moment: datetime, days: int, ticks: int) -> None:
    assert cell_encoder(TsqlType("datetime"))(moment) == struct.pack("<BiI", 8, days, ticks)


def test_money_has_its_high_half_first() -> None:
    assert cell_encoder(TsqlType("money"))(Decimal("-0.0001")) == struct.pack("<BiI", 8, -1, 0xFFFFFFFF)
