"""National strings as code units: every sequence of them arrives, and no two values become one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.core.schema import MAX_LENGTH, SourceColumn
from floodmark.sources.sqlserver.rows import decode_array, string_expression, text_of, units_expression, units_of

_UNITS = st.sampled_from([0, 0x41, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000, 0xFFFF])
_VALUES = st.lists(st.none() | st.lists(_UNITS, max_size=4), max_size=6)


@settings(deadline=None, max_examples=300)
@given(_VALUES, st.integers(0, 2), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_each_value_is_decoded_on_its_own(values: list[list[int] | None], skipped: int, kind: pa.DataType) -> None:
    units = [None if value is None else b"".join(unit.to_bytes(2, "little") for unit in value) for value in values]
    array = pa.array([b"A\0"] * skipped + units, kind).slice(skipped)
    expected = [
        None if value is None else value.decode("utf-16-le", "surrogatepass").encode(errors="surrogatepass")
        for value in units
    ]
    found = decode_array(array)
    assert found.type == pa.large_string()
    assert found.cast(pa.string()).cast(pa.binary()).to_pylist() == expected


@pytest.mark.parametrize(
    ("column", "expression"),
    [
        (SourceColumn("N", "nvarchar", 1, max_length=20), "CAST([N] AS varbinary(40))"),
        (SourceColumn("N", "nchar", 1, max_length=4000), "CAST([N] AS varbinary(8000))"),
        (SourceColumn("N", "sysname", 1, max_length=128), "CAST([N] AS varbinary(256))"),
        (SourceColumn("N", "nvarchar", 1, max_length=MAX_LENGTH), "CAST([N] AS varbinary(max))"),
        (SourceColumn("N", "ntext", 1), "CAST(CAST([N] AS nvarchar(max)) AS varbinary(max))"),
        (SourceColumn("N", "varchar", 1, max_length=20), ""),
        (SourceColumn("N", "xml", 1), ""),
    ],
)
def test_only_national_strings_travel_as_code_units(column: SourceColumn, expression: str) -> None:
    assert units_expression(column, "[N]") == expression


def test_key_goes_back_as_the_units_it_came_as() -> None:
    column = SourceColumn("N", "nvarchar", 1, max_length=20)
    assert string_expression(column, "?") == "CAST(CAST(? AS varbinary(40)) AS nvarchar(20))"
    half = b"\x3d\xd8"
    assert (units_of(column, half), text_of(column, half)) == (half, "\ufffd")
    assert (units_of(column, "é"), text_of(column, b"\xe9\x00")) == (b"\xe9\x00", "é")
    other = SourceColumn("N", "varchar", 1, max_length=20)
    assert (units_of(other, "é"), text_of(other, "é"), string_expression(other, "?")) == ("é", "é", "")
