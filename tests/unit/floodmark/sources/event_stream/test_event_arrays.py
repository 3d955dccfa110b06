"""Columns of batches have the values that are read one by one, and keep halves of surrogate pairs as bytes.

Values of another type than the present one are read as the present one, or set aside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import TemporalPolicy
from floodmark.core.types import WarehouseType, warehouse_type
from floodmark.sources.event_stream.change import EventColumn, EventRow, TableForm, parse_column
from floodmark.sources.event_stream.envelope import EventOperation, PoisonError
from floodmark.sources.event_stream.rows import FEWEST_IN_BULK, BadRow, TableRows, build_array
from floodmark.sources.event_stream.usual_form import read_plain_texts
from floodmark.sources.event_stream.values import value_reader
from floodmark.sync.arrow import arrow_type

POLICY = TemporalPolicy.TRUNCATE
INTEGERS = st.integers(-(2**64), 2**64).map(str)
PLAIN = {
    "tinyint": ["7", "99"],
    "smallint": ["-32768", "32767"],
    "int": ["007", "-2147483648"],
    "bigint": ["9223372036854775807"],
    "decimal(18,2)": ["150.00", "-0.00", "0012.5", "9999999999999999.99"],
    "decimal(5,0)": ["99999", "-1"],
    "money": ["-922337203685477.5808", "1"],
    "float": ["1.5", "-3", "1e-99", "0.1", "9.999999999999999E22"],
    "bit": ["0", "1"],
    "date": ["2026-02-28", "1000-01-01"],
    "datetime": ["2026-02-28 23:59:59.997", "1900-01-01T00:00:00"],
    "smalldatetime": ["2026-02-28 23:59:00"],
    "datetime2(7)": ["2026-02-28 23:59:59.9999999", "1000-01-01 00:00:00.1"],
    "datetime2(3)": ["2026-02-28 23:59:59.999"],
    "datetime2(0)": ["2999-12-31T23:59:59"],
    "uniqueidentifier": ["6F9619FF-8B86-D011-B42D-00C04FC964FF"],
    "nvarchar(9)": ["", "\U0001f600é", "x" * 9],
    "varchar(max)": ["x" * 5000],
    "varbinary(3)": ["0x", "0x00fFA1"],
    "varbinary(max)": ["0x" + "AB" * 5000],
}
"""Texts of each type that is read in bulk."""
OTHERS = {
    "tinyint": ["255", "256"],
    "smallint": ["32768"],
    "int": ["+5", "0x10", " 1", "", "1.0", "5\n"],
    "bigint": ["9223372036854775808"],
    "decimal(18,2)": ["+1.5", "1e2", "5.", ".5", "1.250", "1.255", "99999999999999999.99"],
    "money": ["1.00001"],
    "float": ["1e309", "inf", "nan", "1e308"],
    "bit": ["true", "FALSE", "2"],
    "date": ["0000-01-01", "0001-01-01", "2026-02-30", "2026-02-28 00:00:00"],
    "datetime": ["2026-02-28 23:59:59.9966667", "9999-12-31 23:59:59.9999"],
    "datetime2(7)": ["2026-02-28", "2026-02-28 24:00:00", "2026-02-28 23:59:60", "2026-02-28 12:00:00Z"],
    "datetime2(3)": ["2026-02-28 23:59:59.9990000", "2026-02-28 23:59:59.9999"],
    "datetime2(0)": ["2026-02-28 23:59:59.0"],
    "uniqueidentifier": ["{6F9619FF-8B86-D011-B42D-00C04FC964FF}"],
    "nvarchar(9)": ["x" * 10],
    "varbinary(3)": ["0x00FFA1B2", "q83v", "0X00", "0x0"],
    "real": ["1.5", "3.4028235E38", "1e39"],
    "time(7)": ["23:59:59.9999999"],
    "datetimeoffset(7)": ["2026-02-28 12:00:00.1234567 +02:00"],
}
"""Texts that are read one by one, and texts that are no value."""
DECLARED = sorted(PLAIN | OTHERS)
SPOILT = "0159-+.:eETxXZ {}\né"


def kind_of(column: SourceColumn) -> WarehouseType:
    return warehouse_type(SourceTable(TableName("s", "t"), (column,), ()), column, POLICY)


def build(declared: str, texts: list[str | None]) -> pa.Array:
    column = parse_column("c", declared, 0)
    return build_array(texts, column, kind_of(column), POLICY)


@st.composite
def texts_of(draw: st.DrawFn, declared: str) -> list[str | None]:
    """Return texts of a type, and some with another character at one place."""
    known = st.sampled_from([*PLAIN.get(declared, []), *OTHERS.get(declared, [])])

    def spoil(text: str, place: int, by: str) -> str:
        return text[: place % (len(text) + 1)] + by + text[place % (len(text) + 1) + 1 :]

    spoilt = st.builds(spoil, known, st.integers(0, 60), st.sampled_from(["", *SPOILT]))
    return draw(st.lists(st.none() | known, max_size=4)) + draw(st.lists(spoilt | INTEGERS, max_size=1))


def assert_read_as_one_by_one(declared: str, texts: list[str | None]) -> None:
    column = parse_column("c", declared, 0)
    kind = kind_of(column)
    try:
        values = [value_reader(column, kind, POLICY)(text) for text in texts]
    except PoisonError as fault:
        with pytest.raises(PoisonError, match=f"^{re.escape(str(fault))}$"):
            build(declared, texts * FEWEST_IN_BULK)
        return
    expected = pa.array(values, arrow_type(kind))
    assert build(declared, texts).equals(expected)
    assert build(declared, texts * FEWEST_IN_BULK).equals(pa.concat_arrays([expected] * FEWEST_IN_BULK))


@settings(deadline=None, max_examples=50)
@given(st.data())
@pytest.mark.parametrize("declared", DECLARED)
def test_values_are_those_that_are_read_one_by_one(declared: str, data: st.DataObject) -> None:
    assert_read_as_one_by_one(declared, data.draw(texts_of(declared)))


@pytest.mark.parametrize("declared", DECLARED)
def test_each_known_text_is_read_as_one_by_one(declared: str) -> None:
    for text in [*PLAIN.get(declared, []), *OTHERS.get(declared, [])]:
        assert_read_as_one_by_one(declared, [text])
        assert_read_as_one_by_one(declared, [None, text])


@pytest.mark.parametrize("declared", PLAIN)
def test_plain_texts_are_read_in_bulk(declared: str) -> None:
    column = parse_column("c", declared, 0)
    assert read_plain_texts([*PLAIN[declared], None], column, kind_of(column)) is not None


def test_key_that_is_finer_than_a_microsecond_keeps_its_text() -> None:
    column = parse_column("c", "datetime2(7)", 0)
    kind = warehouse_type(SourceTable(TableName("s", "t"), (column,), ("c",)), column, POLICY)
    text = "2026-02-28 23:59:59.9999999"
    assert build_array([text], column, kind, POLICY).to_pylist() == [text]


def test_half_of_a_surrogate_pair_is_three_bytes() -> None:
    found = build("nvarchar(9)", ["a\ud83d", None, "\U0001f600é"])
    assert found.type == pa.string()
    assert found.cast(pa.binary()).to_pylist() == [b"a\xed\xa0\xbd", None, "\U0001f600é".encode()]


def test_columns_have_the_types_of_the_pipeline() -> None:
    assert build("decimal(18,2)", ["150.00", None]).type == pa.decimal128(18, 2)
    assert build("datetimeoffset(7)", [None]).type == pa.timestamp("us", tz="UTC")
    with pytest.raises(PoisonError, match="column c"):
        build("bit", ["2"])


def rows_written_as(written: str, present: str, texts: Sequence[str | None]) -> list[Any]:
    """Return the values of a column that had another type when the events were written, and the rows set aside."""
    key, now = parse_column("Id", "int", 0), parse_column("c", present, 1)
    table = SourceTable(TableName("dbo", "T"), (key, now), ("Id",))
    columns = (EventColumn("Id", "int", 0, key), EventColumn("c", written, 1, parse_column("c", written, 1)))
    rows = [
        EventRow(
            place,
            datetime(2026, 3, 1, tzinfo=UTC),
            (7).to_bytes(10),
            place,
            EventOperation.INSERT,
            (),
            None,
            (str(place), text),
            frozenset(),
            frozenset(),
            0,
            "guid",
        )
        for place, text in enumerate(texts)
    ]
    found: list[Any] = []
    for each in TableRows(table, POLICY).build(TableForm("Shop", "dbo", "T", columns), rows):
        found += [each] if isinstance(each, BadRow) else each.column("c").to_pylist()
    return found


@pytest.mark.parametrize("times", [1, FEWEST_IN_BULK])
@pytest.mark.parametrize(
    ("written", "present", "text", "expected"),
    [
        ("int", "bigint", "7", 7),
        ("bigint", "int", "7", 7),
        ("decimal(9,2)", "float", "1.50", 1.5),
        ("float", "decimal(9,2)", "1.5", Decimal("1.50")),
        ("decimal(18,4)", "decimal(9,2)", "1.5000", Decimal("1.50")),
        ("bit", "int", "1", 1),
        ("int", "bit", "0", False),
        ("varchar(9)", "nvarchar(20)", "abc", "abc"),
        ("date", "datetime2(7)", "2026-03-01", datetime(2026, 3, 1)),
        ("int", "nvarchar(20)", None, None),
    ],
)
def test_values_of_another_type_are_read_as_the_present_type(
    written: str, present: str, text: str | None, expected: object, times: int
) -> None:
    assert rows_written_as(written, present, [text] * times) == [expected] * times


@pytest.mark.parametrize("times", [1, FEWEST_IN_BULK])
@pytest.mark.parametrize(
    ("written", "present", "text"),
    [
        ("bigint", "int", "4294967296"),
        ("decimal(18,4)", "decimal(9,2)", "1.2345"),
        ("float", "int", "1.5"),
        ("int", "bit", "5"),
        ("nvarchar(20)", "int", "5"),
        ("int", "nvarchar(20)", "5"),
        ("bit", "nvarchar(20)", "1"),
        ("datetime2(3)", "nvarchar(40)", "2026-03-01 12:00:00.000"),
        ("datetime2(3)", "date", "2026-03-01 12:00:00.000"),
        ("bigint", "datetime2(7)", "5"),
        ("varbinary(9)", "varchar(9)", "0x4142"),
        ("uniqueidentifier", "nvarchar(40)", "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
        ("datetimeoffset(0)", "datetime2(0)", "2026-03-01 12:00:00 +02:00"),
        ("nvarchar(20)", "bit", "1"),
    ],
)
def test_value_that_has_no_certain_form_in_the_present_type_is_set_aside(
    written: str, present: str, text: str, times: int
) -> None:
    found = rows_written_as(written, present, [text] * times + [None])
    assert [isinstance(each, BadRow) for each in found] == [True] * times + [False]
    assert text not in found[0].reason.replace(written, "").replace(present, "")
