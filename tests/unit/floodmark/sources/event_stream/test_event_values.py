"""Texts of events become the values of batches, leniently; what is no value of its type is refused without its text."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.core.schema import SourceTable, TableName
from floodmark.core.settings import TemporalPolicy
from floodmark.core.types import warehouse_type
from floodmark.sources.event_stream.change import parse_column
from floodmark.sources.event_stream.envelope import PoisonError
from floodmark.sources.event_stream.values import FORMS, value_reader, write_value
from floodmark.sync.arrow import arrow_type

GUID = "6F9619FF-8B86-D011-B42D-00C04FC964FF"


def read(
    declared: str, text: str | None, policy: TemporalPolicy = TemporalPolicy.TRUNCATE, *, in_key: bool = False
) -> Any:
    """Return the value of a text, as it is in the Arrow column of its type."""
    column = parse_column("c", declared, 0)
    kind = warehouse_type(SourceTable(TableName("s", "t"), (column,), ("c",) if in_key else ()), column, policy)
    return pa.array([value_reader(column, kind, policy)(text)], arrow_type(kind))[0].as_py()


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ("int", "int"),
        ("NVARCHAR( 50 )", "nvarchar(50)"),
        ("nvarchar(max)", "nvarchar(max)"),
        ("varbinary(MAX)", "varbinary(max)"),
        ("char", "char(1)"),
        ("decimal(18, 2)", "decimal(18,2)"),
        ("decimal", "decimal(18,0)"),
        ("numeric(5)", "numeric(5,0)"),
        ("datetime2(7)", "datetime2(7)"),
        ("datetime2", "datetime2(7)"),
        ("time(0)", "time(0)"),
        ("float(53)", "float"),
        ("float(24)", "real"),
        ("[int]", "int"),
        ("PhoneNumber", "phonenumber"),
    ],
)
def test_declared_type_is_read(declared: str, shown: str) -> None:
    column = parse_column("c", declared, 4)
    assert (column.declared_type, column.ordinal) == (shown, 5)


@pytest.mark.parametrize(
    "declared",
    [
        *("", "(", "int(", "nvarchar(0)", "nvarchar(4001)", "char(max)", "int(max)", "decimal(39,1)", "decimal(3,4)"),
        *("datetime2(8)", "float(54)", "int(3,2)", "varchar(3,2)", "varchar(max,2)", "xxxxx;"),
    ],
)
def test_declaration_without_a_meaning_is_poison(declared: str) -> None:
    with pytest.raises(PoisonError, match="column c"):
        parse_column("c", declared, 0)


@pytest.mark.parametrize(
    ("declared", "text", "value"),
    [
        ("int", "105", 105),
        ("smallint", "8", 8),
        ("tinyint", "255", 255),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("bit", "1", True),
        ("bit", "False", False),
        ("decimal(18,2)", "150.00", Decimal("150.00")),
        ("decimal(18,2)", "1.5E+2", Decimal("150.00")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("money", "-922337203685477.5808", Decimal("-922337203685477.5808")),
        ("float", "1e-3", 0.001),
        ("real", "0.1", struct.unpack("f", struct.pack("f", 0.1))[0]),
        ("nvarchar(5)", "NULL", "NULL"),
        ("varchar(100)", "", ""),
        ("binary(2)", "0x00fF", b"\x00\xff"),
        ("varbinary(4)", "0x", b""),
        ("varbinary(4)", "AP8=", b"\x00\xff"),
        ("uniqueidentifier", GUID, GUID.lower()),
        ("uniqueidentifier", "{" + GUID + "}", GUID.lower()),
        ("date", "2026-01-02", date(2026, 1, 2)),
        ("date", "2026-01-02 00:00:00", date(2026, 1, 2)),
        ("datetime", "2025-03-14 16:45:01.000", datetime(2025, 3, 14, 16, 45, 1)),
        ("datetime", "2025-03-14T16:45:01.0066667", datetime(2025, 3, 14, 16, 45, 1, 7000)),
        ("smalldatetime", "2025-03-14 16:45", datetime(2025, 3, 14, 16, 45)),
        ("datetime2(7)", "2026-08-07 16:25:00.8833339", datetime(2026, 8, 7, 16, 25, 0, 883333)),
        ("datetime2(3)", "2026-08-07 16:25:00.8830000", datetime(2026, 8, 7, 16, 25, 0, 883000)),
        ("time(7)", "16:25:00.8833339", "16:25:00.883333"),
        ("time(0)", "16:25:00", "16:25:00.000000"),
        ("datetimeoffset(7)", "2026-08-07 01:25:00.8833339 +02:00", datetime(2026, 8, 6, 23, 25, 0, 883333, UTC)),
        ("datetimeoffset(0)", "2026-08-07T01:25:00Z", datetime(2026, 8, 7, 1, 25, tzinfo=UTC)),
        ("int", None, None),
        ("real", "3.4028235e38", struct.unpack("<f", bytes.fromhex("FFFF7F7F"))[0]),
    ],
)
def test_text_becomes_the_value_of_a_batch(declared: str, text: str | None, value: Any) -> None:
    assert read(declared, text) == value


@pytest.mark.parametrize(
    ("declared", "text", "policy", "in_key", "value"),
    [
        ("datetime2(7)", "2026-08-07 16:25:00.8833339", "text", False, "2026-08-07 16:25:00.8833339"),
        ("datetime2(7)", "2026-08-07 16:25:00.8833339", "truncate", True, "2026-08-07 16:25:00.8833339"),
        ("time(7)", "16:25:00.8833339", "text", False, "16:25:00.8833339"),
        ("datetimeoffset(7)", "2026-08-07 01:25:00.5 +02:00", "text", True, "2026-08-07 01:25:00.5000000 +02:00"),
        ("datetimeoffset(0)", "2026-08-07 01:25:00 -09:30", "text", False, "2026-08-07 01:25:00 -09:30"),
        ("datetimeoffset(7)", "2026-08-07 01:25:00 +02:00", "truncate", True, "2026-08-06 23:25:00.0000000 +00:00"),
    ],
)
def test_temporal_text_is_that_of_change_data_capture(
    *, declared: str, text: str, policy: str, in_key: bool, value: str
) -> None:
    """CDC reads such a column by CONVERT with style 121, in UTC where the offset is not kept."""
    assert read(declared, text, TemporalPolicy(policy), in_key=in_key) == value


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ("int", "seven"),
        ("int", "1_000"),
        ("int", " 7"),
        ("int", "٧"),
        ("int", "2147483648"),
        ("tinyint", "-1"),
        ("bigint", "9223372036854775808"),
        ("bit", "2"),
        ("decimal(5,2)", "1.234"),
        ("decimal(3,2)", "12.34"),
        ("decimal(3,2)", "NaN"),
        ("decimal(3,2)", "1e9999"),
        ("money", "$1"),
        ("float", "inf"),
        ("float", "1e400"),
        ("real", "1e39"),
        ("nvarchar(3)", "four"),
        ("binary(1)", "0x0102"),
        ("varbinary(5)", "0x0"),
        ("varbinary(5)", "===="),
        ("uniqueidentifier", GUID[1:]),
        ("date", "2026-02-30"),
        ("date", "2026-02-03 10:00:00"),
        ("time(7)", "24:00:00"),
        ("time(7)", "2026-08-07 10:00:00"),
        ("datetime2(3)", "2026-08-07 16:25:00.8833"),
        ("datetime2(7)", "16:25:00"),
        ("datetime2(7)", "2026-08-07 16:25:00 +01:00"),
        ("datetimeoffset(7)", "2026-08-07 16:25:00"),
        ("datetimeoffset(7)", "2026-08-07 16:25:00 +14:01"),
        ("datetimeoffset(7)", "0001-01-01 00:00:00 +14:00"),
        ("smalldatetime", ""),
        ("smalldatetime", "2025-03-14 16:45:00.5"),
        ("real", "3.4028236e38"),
    ],
)
def test_text_that_is_no_value_is_refused_without_being_named(declared: str, text: str) -> None:
    with pytest.raises(PoisonError, match="column c has a value") as caught:
        read(declared, text)
    assert not text or text not in str(caught.value).replace(parse_column("c", declared, 0).declared_type, "")
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("declared", ["sql_variant", "hierarchyid", "phonenumber"])
def test_type_that_events_cannot_have_is_refused(declared: str) -> None:
    column = parse_column("c", declared, 0)
    with pytest.raises(PoisonError, match=declared):
        value_reader(
            column,
            warehouse_type(SourceTable(TableName("s", "t"), (), ()), parse_column("c", "int", 0), TemporalPolicy.TEXT),
            TemporalPolicy.TEXT,
        )
    with pytest.raises(PoisonError, match=declared):
        write_value(column, "x")


_MOMENTS = st.datetimes()
_TEXTS = st.text(max_size=20)
_BYTES = st.binary(max_size=20)
_MONEY = st.integers(-(2**63), 2**63 - 1).map(lambda units: Decimal(units).scaleb(-4))
_OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "tinyint": st.integers(0, 255),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "decimal(38,10)": st.decimals(-(10**27), 10**27, places=10),
    "numeric(9,0)": st.decimals(-(10**9) + 1, 10**9 - 1, places=0),
    "money": _MONEY,
    "smallmoney": st.decimals(Decimal("-214748.3648"), Decimal("214748.3647"), places=4),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "real": st.floats(allow_nan=False, allow_infinity=False, width=32),
    **dict.fromkeys(("char(20)", "varchar(20)", "nchar(20)", "nvarchar(20)", "nvarchar(max)", "sysname"), _TEXTS),
    **dict.fromkeys(("text", "ntext", "xml", "json"), _TEXTS),
    **dict.fromkeys(("binary(20)", "varbinary(20)", "varbinary(max)", "image", "rowversion", "timestamp"), _BYTES),
    "uniqueidentifier": st.uuids().map(str),
    "date": st.dates(),
    "time(7)": st.times().map(lambda value: value.isoformat("microseconds")),
    "datetime": _MOMENTS.map(lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000)),
    "smalldatetime": _MOMENTS.map(lambda value: value.replace(microsecond=0)),
    "datetime2(6)": _MOMENTS,
    "datetime2(7)": _MOMENTS,
    "datetimeoffset(7)": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=_OFFSETS),
}
"""Values of each type, as Arrow returns them."""


def test_every_type_of_the_table_has_values() -> None:
    assert {parse_column("c", declared, 0).type_name for declared in VALUES} == set(FORMS)


@settings(max_examples=50, deadline=None)
@given(st.data())
@pytest.mark.parametrize("declared", VALUES)
def test_written_value_is_read_again(declared: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[declared])
    text = write_value(parse_column("c", declared, 0), value)
    assert read(declared, text) == value


@settings(max_examples=50, deadline=None)
@given(st.data())
@pytest.mark.parametrize("declared", VALUES)
def test_any_text_is_a_value_or_poison(declared: str, data: st.DataObject) -> None:
    text = data.draw(st.text() | st.from_regex(r"[-+0-9:. TZex]{0,30}", fullmatch=True))
    try:
        value = read(declared, text)
    except PoisonError:
        return
    again = write_value(parse_column("c", declared, 0), value)
    assert read(declared, again) == value


@settings(max_examples=50, deadline=None)
@given(_MOMENTS, st.integers(0, 9), st.integers(0, 7))
def test_hundred_nanoseconds_are_kept_as_text(moment: datetime, tick: int, digits: int) -> None:
    text = f"{moment:%H:%M:%S}.{moment.microsecond:06}{tick}"[: 9 + digits if digits else 8]
    text = f"{moment.year:04}-{moment.month:02}-{moment.day:02} {text}"
    column = parse_column("c", f"datetime2({digits})", 0)
    assert write_value(column, text) == text
    if digits == 7:
        assert read("datetime2(7)", text, TemporalPolicy.TEXT) == text
        assert read("datetime2(7)", text) == moment


def test_forms_of_writing_are_fixed() -> None:
    written = {
        "bit": (True, "1"),
        "decimal(18,2)": (Decimal(150), "150.00"),
        "money": (Decimal("1.5"), "1.5000"),
        "float": (1.0, "1"),
        "real": (0.1, "0.1"),
        "varbinary(3)": (b"\x00\xff", "0x00FF"),
        "uniqueidentifier": (GUID.lower(), GUID),
        "date": (date(2026, 1, 2), "2026-01-02"),
        "time(3)": (time(1, 2, 3, 4500), "01:02:03.004"),
        "time(0)": (time(1, 2, 3), "01:02:03"),
        "datetime": (datetime(2025, 3, 14, 16, 45, 1, 3333), "2025-03-14 16:45:01.003"),
        "smalldatetime": (datetime(2025, 3, 14, 16, 45), "2025-03-14 16:45:00"),
        "datetime2(7)": ("2026-08-07 16:25:00.8833339", "2026-08-07 16:25:00.8833339"),
        "datetimeoffset(3)": (
            datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
            "2026-01-02 00:00:00.000 -09:30",
        ),
    }
    shown = {declared: write_value(parse_column("c", declared, 0), value) for declared, (value, _) in written.items()}
    assert shown == {declared: text for declared, (_, text) in written.items()}
    assert write_value(parse_column("c", "int", 0), None) is None
