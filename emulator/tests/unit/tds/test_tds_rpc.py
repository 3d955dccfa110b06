"""RPC messages: what a server sends as a value it must also read as a parameter."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.session import RpcArgument
from sqlserver_emulator.tds.reading import ProtocolError
from sqlserver_emulator.tds.rpc import parse_calls
from sqlserver_emulator.tds.tokens import short_text
from sqlserver_emulator.tds.type_info import encode_type_info
from sqlserver_emulator.tds.values import cell_encoder, null_bytes
from sqlserver_emulator.types import INT, MAX_LENGTH, TsqlType
from tds_strategies import PATIENT, TYPES, values_of

HEADERS = struct.pack("<IIHQI", 22, 18, 2, 0, 1)
POINTERS = ("text", "ntext", "image")


FLOAT = TsqlType("float")


def call(name: str | int, *parameters: bytes) -> bytes:
    head = (
        struct.pack("<HH", 0xFFFF, name)
        if isinstance(name, int)
        else struct.pack("<H", len(name)) + name.encode("utf-16-le")
    )
    return head + b"\x00\x00" + b"".join(parameters)


def parameter(type_: TsqlType, value: Any, name: str = "@p", status: int = 0) -> bytes:
    data = null_bytes(type_) if value is None else cell_encoder(type_)(value)
    if type_.name in POINTERS:  # a client sends no text pointer
        data = struct.pack("<i", -1) if value is None else data[25:]
    return short_text(name) + bytes((status,)) + encode_type_info(type_) + data


@st.composite
def arguments(draw: st.DrawFn) -> RpcArgument:
    type_ = draw(TYPES)
    value = draw(st.one_of(st.none(), values_of(type_)))
    return RpcArgument(draw(st.sampled_from(["", "@P1", "@naïve"])), type_, value, draw(st.booleans()))


def received(argument: RpcArgument) -> RpcArgument:
    """Types that have no form of their own on the wire."""
    name = {"sysname": "nvarchar", "rowversion": "binary"}.get(argument.type.name)
    if name is None:
        return argument
    return RpcArgument(argument.name, TsqlType(name, argument.type.length or 8), argument.value, argument.output)


@PATIENT
@given(st.lists(arguments(), max_size=4))
def test_parameters_of_every_type_are_read(sent: list[RpcArgument]) -> None:
    parameters = [parameter(a.type, a.value, a.name, int(a.output)) for a in sent]
    (parsed,) = parse_calls(HEADERS + call("dbo.p", *parameters))
    assert parsed.procedure == "dbo.p"
    assert list(parsed.arguments) == [received(argument) for argument in sent]
    assert [repr(a.value) for a in parsed.arguments if isinstance(a.value, Decimal)] == [
        repr(a.value) for a in sent if isinstance(a.value, Decimal)
    ]


def test_chained_calls_are_separated() -> None:
    payload = HEADERS + call(15, parameter(INT, 1)) + b"\xff" + call(15, parameter(INT, 2)) + b"\xff" + call(12)
    calls = list(parse_calls(payload))
    assert [(c.procedure, len(c.arguments), c.is_last) for c in calls] == [
        ("sp_unprepare", 1, False),
        ("sp_unprepare", 1, False),
        ("sp_execute", 0, True),
    ]


def test_a_value_in_chunks_of_unknown_total_is_put_together() -> None:
    chunks = struct.pack("<QI", 0xFFFFFFFFFFFFFFFE, 2) + b"ab" + struct.pack("<I", 1) + b"c" + struct.pack("<I", 0)
    data = short_text("@p") + b"\x00" + encode_type_info(TsqlType("varbinary", MAX_LENGTH)) + chunks
    (parsed,) = parse_calls(HEADERS + call("p", data))
    assert parsed.arguments[0].value == b"abc"


def test_utf8_text_is_read_by_its_collation() -> None:
    data = short_text("@p") + b"\x00\xa7\x14\x00" + bytes.fromhex("0904002600") + b"\x02\x00" + "é".encode()
    (parsed,) = parse_calls(HEADERS + call("p", data))
    assert parsed.arguments[0].value == "é"


@pytest.mark.parametrize(("token", "word"), [(0x62, "sql_variant"), (0xF0, "CLR")], ids=str)
def test_parameter_types_that_are_not_supported_are_refused_by_name(token: int, word: str) -> None:
    with pytest.raises(NotSupportedByEmulatorError, match=word):
        list(parse_calls(HEADERS + call("p", b"\x00\x00" + bytes((token,)) + b"\x00" * 20)))


@PATIENT
@given(st.lists(arguments(), min_size=1, max_size=3), st.data())
def test_a_cut_message_is_a_protocol_error(sent: list[RpcArgument], data: st.DataObject) -> None:
    payload = HEADERS + call("p", *[parameter(a.type, a.value, a.name) for a in sent])
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    try:
        calls = list(parse_calls(cut))
    except ProtocolError:
        return
    assert len(calls[0].arguments) < len(sent)


@PATIENT
@given(st.binary(max_size=200))
def test_noise_is_a_protocol_error_or_a_refusal(noise: bytes) -> None:
    try:
        list(parse_calls(HEADERS + noise))
    except (ProtocolError, NotSupportedByEmulatorError):
        return


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_float_that_is_no_number_is_error_8023(value: float) -> None:
    calls = parse_calls(HEADERS + call("p", parameter(FLOAT, 1.5), parameter(FLOAT, value, "@second")))
    with pytest.raises(SqlServerError, match=r'Parameter 2 \("@second"\).* data type float') as raised:
        next(calls)
    assert raised.value.number == 8023
