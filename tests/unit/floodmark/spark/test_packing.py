"""Rows in buckets: equal keys meet, and everything comes back."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.spark.net import BUCKETS, entries, key_hashes, pack, unpack

EVERY_KEY_TYPE: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int16(), [1, -1, 2]),
    (pa.int32(), [1, -1, 2**31 - 1]),
    (pa.int64(), [1, -(2**63), 2**63 - 1]),
    (pa.bool_(), [True, False]),
    (pa.string(), ["", "a", "ab", "ba", "日本", "x" * 1000]),
    (pa.binary(), [b"", b"\x00", b"\x00\x00", b"\x01"]),
    (pa.decimal128(18, 2), [Decimal("1.25"), Decimal("-1.25"), Decimal("0.00")]),
    (pa.decimal128(38, 0), [Decimal(10**37), Decimal(1)]),
    (pa.float64(), [1.5, -1.5]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    (pa.timestamp("us"), [datetime(1, 1, 1), datetime(9999, 12, 31)]),
]


@pytest.mark.parametrize(("kind", "values"), EVERY_KEY_TYPE)
def test_hash_distinguishes_values_and_does_not_depend_on_their_place(kind: pa.DataType, values: list[Any]) -> None:
    together = pa.RecordBatch.from_arrays([pa.array([None, *values, None, *values], kind).slice(1)], ["k"])
    hashes = key_hashes(together, ("k",)).tolist()
    half = len(values)
    assert hashes[:half] == hashes[half + 1 :]
    assert len(set(hashes[:half])) == half
    for value, expected in zip(values, hashes, strict=False):
        alone = pa.RecordBatch.from_arrays([pa.array([value], kind)], ["k"])
        assert key_hashes(alone, ("k",)).tolist() == [expected]


def test_negative_zero_is_zero() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([0.0, -0.0])], ["k"])
    assert len(set(key_hashes(rows, ("k",)).tolist())) == 1


def test_hash_of_a_composite_key_depends_on_the_order_of_its_columns() -> None:
    rows = pa.RecordBatch.from_pydict({"a": pa.array([1, 2], pa.int32()), "b": pa.array([2, 1], pa.int32())})
    assert len(set(key_hashes(rows, ("a", "b")).tolist())) == 2


def test_numbers_in_a_row_fall_into_all_buckets() -> None:
    rows = pa.RecordBatch.from_pydict({"k": pa.array(range(100 * BUCKETS), pa.int64())})
    sizes = [piece.as_py() for batch in pack([rows], ("k",), lambda r: r) for piece in batch.column("source_rows")]
    assert len(sizes) == BUCKETS
    assert max(sizes) < 200


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.text(max_size=5)), max_size=20), max_size=5))
def test_packed_rows_come_back(batches: list[list[tuple[int, str]]]) -> None:
    schema = pa.schema([("k", pa.int32()), ("v", pa.string())])
    rows = [pa.RecordBatch.from_arrays([[k for k, _ in b], [v for _, v in b]], schema=schema) for b in batches]
    expected = [row for batch in batches for row in batch]
    packed = list(entries(pack(iter(rows), ("k",), lambda r: r)))
    found = [(row["k"], row["v"]) for batch in unpack(packed) for row in batch.to_pylist()]
    assert sorted(found) == sorted(expected)
    assert sum(entry.source_rows for entry in packed) == len(expected)


def test_bucket_is_never_divided_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.spark.net._GROUP_BYTES", 1)
    rows = pa.RecordBatch.from_pydict({"k": pa.array([1, 2, 3] * 50, pa.int32())})
    pieces = [batch for _ in range(3) for batch in pack([rows], ("k",), lambda r: r)]
    rows_of = sorted((b.slice(i, 1) for b in pieces for i in range(b.num_rows)), key=lambda b: b.column(0)[0].as_py())
    found = [set(batch.column("k").to_pylist()) for batch in unpack(entries(rows_of))]
    assert len(found) == 3
    assert sum(map(len, found)) == 3
