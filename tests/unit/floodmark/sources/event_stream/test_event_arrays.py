"""Columns of batches have the values that are read one by one, and keep halves of surrogate pairs as bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceTable, TableName
from floodmark.core.types import warehouse_type
from floodmark.sources.event_stream.arrays import build_array
from floodmark.sources.event_stream.declared import parse_column
from floodmark.sources.event_stream.faults import PoisonError
from floodmark.sources.event_stream.values import value_reader
from floodmark.sync.ports.arrow import arrow_type

POLICY = TemporalPolicy.TRUNCATE
TEXTS = st.none() | st.integers(-(2**64), 2**64).map(str) | st.sampled_from(["+5", "0x10", " 1", "", "007", "1.0"])


def build(declared: str, texts: list[str | None]) -> pa.Array:
    column = parse_column("c", declared, 0)
    return build_array(
        texts, column, warehouse_type(SourceTable(TableName("s", "t"), (column,), ()), column, POLICY), POLICY
    )


@settings(deadline=None)
@given(st.lists(TEXTS))
@pytest.mark.parametrize("declared", ["smallint", "int", "bigint", "tinyint"])
def test_integers_are_those_that_are_read_one_by_one(declared: str, texts: list[str | None]) -> None:
    column = parse_column("c", declared, 0)
    kind = warehouse_type(SourceTable(TableName("s", "t"), (column,), ()), column, POLICY)
    try:
        expected = [value_reader(column, kind, POLICY)(text) for text in texts]
    except PoisonError:
        with pytest.raises(PoisonError):
            build(declared, texts)
        return
    found = build(declared, texts)
    assert (found.to_pylist(), found.type) == (expected, arrow_type(kind))


def test_half_of_a_surrogate_pair_is_three_bytes() -> None:
    found = build("nvarchar(9)", ["a\ud83d", None, "\U0001f600é"])
    assert found.type == pa.string()
    assert found.cast(pa.binary()).to_pylist() == [b"a\xed\xa0\xbd", None, "\U0001f600é".encode()]


def test_columns_have_the_types_of_the_pipeline() -> None:
    assert build("decimal(18,2)", ["150.00", None]).type == pa.decimal128(18, 2)
    assert build("datetimeoffset(7)", [None]).type == pa.timestamp("us", tz="UTC")
    with pytest.raises(PoisonError, match="column c"):
        build("bit", ["2"])
