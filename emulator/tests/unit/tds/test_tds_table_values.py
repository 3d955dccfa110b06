"""Table-valued parameters as bytes: what a client may send, and what is refused with which number."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.session import RpcArgument, TableValue
from sqlserver_emulator.tds.reading import ProtocolError
from sqlserver_emulator.tds.rpc import parse_calls
from sqlserver_emulator.tds.tokens import short_text
from sqlserver_emulator.tds.type_info import encode_type_info
from sqlserver_emulator.tds.values import cell_encoder, null_bytes
from sqlserver_emulator.types import INT, TsqlType
from tds_strategies import PATIENT

HEADERS = struct.pack("<IIHQI", 22, 18, 2, 0, 1) + struct.pack("<H", 1) + b"p\x00" + b"\x00\x00"
CODE, AMOUNT, FLOAT = (
    TsqlType("nvarchar", 5),
    TsqlType("decimal", precision=9, scale=2),
    TsqlType("float", precision=53),
)
DEFAULT = 0x0200
END = b"\x00"


def column(type_: TsqlType, flags: int = 1, name: str = "") -> bytes:
    return struct.pack("<IH", 0, flags) + encode_type_info(type_) + short_text(name)


def row(*cells: tuple[TsqlType, object]) -> bytes:
    return b"\x01" + b"".join(null_bytes(t) if value is None else cell_encoder(t)(value) for t, value in cells)


def table(
    *columns: bytes, count: int | None = None, optional: bytes = b"", rows: bytes = b"", name: str = "@t"
) -> bytes:
    metadata = struct.pack("<H", len(columns) if count is None else count) + b"".join(columns)
    named = short_text("") + short_text("dbo") + short_text("Lines")
    return parameter(named + metadata + optional + END + rows + END, name)


def parameter(value: bytes, name: str = "@t", status: int = 0) -> bytes:
    return short_text(name) + bytes((status,)) + b"\xf3" + value


def parsed(*parameters: bytes) -> tuple[RpcArgument, ...]:
    ((call),) = parse_calls(HEADERS + b"".join(parameters))
    return call.arguments


def refused(*parameters: bytes) -> SqlServerError:
    with pytest.raises(SqlServerError) as caught:
        parsed(*parameters)
    return caught.value


def test_columns_and_rows_are_read() -> None:
    rows = row((INT, 1), (CODE, "é"), (AMOUNT, Decimal("1.50"))) + row((INT, None), (CODE, None), (AMOUNT, None))
    sent = table(column(INT), column(CODE), column(AMOUNT), rows=rows)
    first, second = parsed(sent, short_text("@n") + b"\x00" + encode_type_info(INT) + cell_encoder(INT)(7))
    value = first.value
    assert isinstance(value, TableValue)
    assert (value.schema, value.name, value.parameter, value.ordinal) == ("dbo", "Lines", "@t", 1)
    assert value.columns == (INT, CODE, AMOUNT)
    expected = [(1, "é", Decimal("1.50")), (None, None, None)]
    assert list(value.rows) == expected
    assert list(value.rows) == expected, "rows can be read more than once"
    assert second.value == 7


def test_a_column_with_its_default_has_no_values_in_the_rows() -> None:
    sent = table(column(INT), column(CODE, flags=DEFAULT), rows=row((INT, 1)) + row((INT, 2)))
    (argument,) = parsed(sent)
    assert isinstance(argument.value, TableValue)
    assert argument.value.columns == (INT, None)
    assert list(argument.value.rows) == [(1,), (2,)]


def test_optional_metadata_is_read_over() -> None:
    order = b"\x10" + struct.pack("<HHBHB", 2, 1, 0x05, 2, 0x02)
    ordering = b"\x11" + struct.pack("<HHH", 2, 1, 2)
    (argument,) = parsed(table(column(INT), column(CODE), optional=order + ordering, rows=row((INT, 1), (CODE, "a"))))
    assert isinstance(argument.value, TableValue)
    assert list(argument.value.rows) == [(1, "a")]


def test_the_default_of_the_parameter_may_be_null() -> None:
    null = b"\x00\x00\x00" + b"\xff\xff" + END + END
    (argument,) = parsed(parameter(null, status=2))
    assert argument.default
    assert isinstance(argument.value, TableValue)
    assert (argument.value.columns, list(argument.value.rows)) == ((), [])
    assert refused(parameter(null)).number == 8060


ONE = column(INT)
BAD_NAME = parameter(
    short_text("db") + short_text("dbo") + short_text("Lines") + struct.pack("<H", 1) + ONE + END + END
)


@pytest.mark.parametrize(
    ("sent", "number", "place"),
    [
        (BAD_NAME, 8047, "row 0, column 0"),
        (table(count=0), 8050, "row 0, column 0"),
        (table(count=1025), 8050, "row 0, column 0"),
        (table(ONE, column(INT, name="id")), 8051, "row 0, column 2"),
        (table(ONE, optional=b"\x12"), 8029, "row 0, column 0"),
        (table(ONE, rows=row((INT, 1)) + b"\x07"), 8029, "row 2, column 0"),
        (table(ONE, optional=(b"\x11" + struct.pack("<HH", 1, 1)) * 2), 8056, "row 0, column 0"),
        (table(ONE, optional=b"\x10" + struct.pack("<HHB", 1, 2, 1)), 8054, "row 0, column 2"),
        (table(ONE, optional=b"\x10" + struct.pack("<HHB", 1, 1, 0)), 8054, "row 0, column 1"),
        (table(ONE, optional=b"\x10" + struct.pack("<HHB", 1, 1, 3)), 8054, "row 0, column 1"),
        (table(ONE, optional=b"\x11" + struct.pack("<HHH", 2, 1, 2)), 8055, "row 0, column 0"),
        (table(ONE, ONE, optional=b"\x11" + struct.pack("<HHH", 2, 1, 1)), 8055, "row 0, column 0"),
        (table(column(INT, flags=DEFAULT), optional=b"\x10" + struct.pack("<HHB", 1, 1, 1)), 8057, "row 0, column 1"),
        (table(column(FLOAT), rows=row((FLOAT, 1.0)) + row((FLOAT, float("nan")))), 8043, "row 2, column 1"),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else None,
)
def test_faults_of_a_table_have_their_numbers(sent: bytes, number: int, place: str) -> None:
    error = refused(sent)
    assert error.number == number
    assert f'Table-valued parameter 1 ("@t"), {place}: ' in error.message


@pytest.mark.parametrize(
    ("sent", "word"),
    [
        (table(ONE, ONE, optional=b"\x11" + struct.pack("<HHH", 2, 2, 1)), "in another order"),
        (table(struct.pack("<IHB", 0, 1, 0xF3)), "in place of the columns"),
        (table(struct.pack("<IHB", 0, 1, 0x62)), "sql_variant"),
    ],
)
def test_what_is_not_supported_in_a_table_is_refused_by_name(sent: bytes, word: str) -> None:
    with pytest.raises(NotSupportedByEmulatorError, match=word):
        parsed(sent)


WHOLE = table(
    *(column(INT), column(CODE), column(AMOUNT)),
    optional=b"\x10" + struct.pack("<HHB", 1, 1, 1),
    rows=row((INT, 1), (CODE, "ab"), (AMOUNT, Decimal(2))) * 3,
)


@pytest.mark.parametrize("size", range(6, len(WHOLE)))
def test_a_table_that_is_cut_off_is_a_protocol_error(size: int) -> None:
    with pytest.raises(ProtocolError):
        parsed(WHOLE[:size])


@PATIENT
@given(st.lists(st.tuples(st.integers(6, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_garbled_table_raises_nothing_else(changes: list[tuple[int, int]]) -> None:
    garbled = bytearray(WHOLE)
    for position, byte in changes:
        garbled[position] = byte
    try:
        for argument in parsed(bytes(garbled)):
            if isinstance(argument.value, TableValue):
                list(argument.value.rows)
    except (ProtocolError, SqlServerError):
        return
