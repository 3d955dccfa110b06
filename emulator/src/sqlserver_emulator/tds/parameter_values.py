"""TYPE_INFO and values as clients send them, in RPC parameters: bytes to ``TsqlType`` and Python values.

Covers every type a client may send; table-valued parameters, sql_variant and CLR types are refused by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.tds import moments
from sqlserver_emulator.tds.reading import MessageReader, ProtocolError
from sqlserver_emulator.tds.type_info import CODE_PAGE, PLP_LENGTH, UTF8_FLAG
from sqlserver_emulator.types import MAX_LENGTH, TsqlType

Decoder: TypeAlias = Callable[[bytes], object]

_NULL_LENGTH = 0xFFFF
_NULL_PLP = 0xFFFF_FFFF_FFFF_FFFF
_UNKNOWN_PLP = 0xFFFF_FFFF_FFFF_FFFE
_COLLATION_BYTES = 5

_REFUSED = {0xF3: "table-valued parameters", 0xF0: "parameters of a CLR type", 0x62: "parameters of type sql_variant"}
_FIXED = {
    0x32: ("bit", 1), 0x30: ("tinyint", 1), 0x34: ("smallint", 2), 0x38: ("int", 4), 0x7F: ("bigint", 8),
    0x3B: ("real", 4), 0x3E: ("float", 8), 0x3C: ("money", 8), 0x7A: ("smallmoney", 4),
    0x3D: ("datetime", 8), 0x3A: ("smalldatetime", 4),
}  # fmt: skip
_SIZED = {
    0x26: {1: "tinyint", 2: "smallint", 4: "int", 8: "bigint"},
    0x68: {1: "bit"},
    0x6D: {4: "real", 8: "float"},
    0x6E: {4: "smallmoney", 8: "money"},
    0x6F: {4: "smalldatetime", 8: "datetime"},
    0x24: {16: "uniqueidentifier"},
}
_DECIMALS = {0x6A: "decimal", 0x6C: "numeric", 0x37: "decimal", 0x3F: "numeric"}
_SCALED = {0x29: "time", 0x2A: "datetime2", 0x2B: "datetimeoffset"}
_SHORT = {
    0xA5: "varbinary", 0xAD: "binary", 0xA7: "varchar", 0xAF: "char", 0xE7: "nvarchar", 0xEF: "nchar",
}  # fmt: skip
_LEGACY = {0x25: "varbinary", 0x2D: "binary", 0x27: "varchar", 0x2F: "char"}
_LONG = {0x23: "text", 0x63: "ntext", 0x22: "image"}
_NULL_TYPE, _DATE, _XML = 0x1F, 0x28, 0xF1


@dataclass(frozen=True, slots=True)
class WireType:
    """Announced type. ``read`` takes the value's bytes from the message (None is NULL), ``decode`` explains them."""

    type: TsqlType
    read: Callable[[MessageReader], bytes | None]
    decode: Decoder

    def read_value(self, reader: MessageReader) -> object:
        data = self.read(reader)
        if data is None:
            return None
        try:
            return self.decode(data)
        except (ValueError, OverflowError, struct.error, ArithmeticError) as error:
            raise ProtocolError(f"a value of type {self.type} cannot be decoded ({type(error).__name__})") from error


def read_wire_type(reader: MessageReader) -> WireType:
    token = reader.read_u8()
    if token in _REFUSED:
        raise NotSupportedByEmulatorError(_REFUSED[token])
    for tokens, read in _READERS:
        if token in tokens:
            return read(token, reader)
    raise ProtocolError(f"unknown type 0x{token:02X} in a parameter")


def _read_fixed(token: int, _reader: MessageReader) -> WireType:
    name, size = _FIXED[token]
    return WireType(_number_type(name), lambda reader: reader.read_bytes(size), _decoder(name))


def _read_sized(token: int, reader: MessageReader) -> WireType:
    size = reader.read_u8()
    name = _SIZED[token].get(size)
    if name is None:
        raise ProtocolError(f"type 0x{token:02X} of {size} bytes")
    return WireType(_number_type(name), _read_byte_length, _decoder(name))


def _number_type(name: str) -> TsqlType:
    return TsqlType(name, precision=53) if name == "float" else TsqlType(name)


def _read_decimal(token: int, reader: MessageReader) -> WireType:
    _size, precision, scale = reader.read_u8(), reader.read_u8(), reader.read_u8()
    if not 1 <= precision <= 38 or scale > precision:
        raise ProtocolError(f"decimal({precision},{scale})")
    type_ = TsqlType(_DECIMALS[token], precision=precision, scale=scale)
    return WireType(type_, _read_byte_length, lambda data: _decode_decimal(data, scale))


def _read_scaled(token: int, reader: MessageReader) -> WireType:
    scale = reader.read_u8()
    if scale > 7:
        raise ProtocolError(f"scale {scale}")
    name = _SCALED[token]
    decode = {
        "time": moments.decode_time,
        "datetime2": moments.decode_datetime2,
        "datetimeoffset": moments.decode_datetimeoffset,
    }[name]
    return WireType(TsqlType(name, scale=scale), _read_byte_length, lambda data: decode(data, scale))


def _read_short(token: int, reader: MessageReader) -> WireType:
    name, size = _SHORT[token], reader.read_u16()
    collation = b"" if name.endswith("binary") else reader.read_bytes(_COLLATION_BYTES)
    unit = 2 if name.startswith("n") else 1
    length = MAX_LENGTH if size == PLP_LENGTH else max(size // unit, 1)
    read = _read_plp if size == PLP_LENGTH else _read_short_length
    return WireType(TsqlType(name, length), read, _content_decoder(name, collation))


def _read_legacy(token: int, reader: MessageReader) -> WireType:
    """The types of TDS 4 with one length byte; NULL is the length 0."""
    name, size = _LEGACY[token], reader.read_u8()
    return WireType(TsqlType(name, max(size, 1)), _read_byte_length, _content_decoder(name, b""))


def _read_long(token: int, reader: MessageReader) -> WireType:
    name = _LONG[token]
    reader.read_u32()
    collation = b"" if name == "image" else reader.read_bytes(_COLLATION_BYTES)
    return WireType(TsqlType(name), _read_long_length, _content_decoder(name, collation))


def _read_xml(_token: int, reader: MessageReader) -> WireType:
    if reader.read_u8():
        raise NotSupportedByEmulatorError("xml parameters with a schema collection")
    return WireType(TsqlType("xml"), _read_plp, _decode_xml)


def _read_date(_token: int, _reader: MessageReader) -> WireType:
    return WireType(TsqlType("date"), _read_byte_length, moments.decode_date)


def _read_null(_token: int, _reader: MessageReader) -> WireType:
    """An untyped NULL: assignable to anything, as varchar(1) is when a driver knows no better."""
    return WireType(TsqlType("nvarchar", 1), lambda _message: None, bytes)


def _read_byte_length(reader: MessageReader) -> bytes | None:
    size = reader.read_u8()
    return reader.read_bytes(size) if size else None


def _read_short_length(reader: MessageReader) -> bytes | None:
    size = reader.read_u16()
    return None if size == _NULL_LENGTH else reader.read_bytes(size)


def _read_long_length(reader: MessageReader) -> bytes | None:
    size = reader.read_i32()
    return None if size < 0 else reader.read_bytes(size)


def _read_plp(reader: MessageReader) -> bytes | None:
    total = reader.read_u64()
    if total == _NULL_PLP:
        return None
    chunks = bytearray()  # not a list: a chunk of one byte would take fifty
    while size := reader.read_u32():
        chunks += reader.read_bytes(size)
    data = bytes(chunks)
    if total not in (_UNKNOWN_PLP, len(data)):
        raise ProtocolError(f"a value announced with {total} bytes has {len(data)}")
    return data


def _unpacker(format_: str) -> Decoder:
    return lambda data: struct.unpack(format_, data)[0]


def _decode_integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=len(data) > 1)


def _decode_decimal(data: bytes, scale: int) -> Decimal:
    magnitude = int.from_bytes(data[1:], "little")
    digits = tuple(map(int, str(magnitude)))
    return Decimal((0 if data[0] else 1, digits, -scale))


def _decode_money(data: bytes) -> Decimal:
    high, low = struct.unpack("<iI", data)
    return _money(high << 32 | low)


def _decode_smallmoney(data: bytes) -> Decimal:
    return _money(struct.unpack("<i", data)[0])


def _money(number: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -4))


def _decode_datetime(data: bytes) -> object:
    days, ticks = struct.unpack("<iI", data)
    return moments.decode_datetime(days, ticks)


def _decode_smalldatetime(data: bytes) -> object:
    days, minutes = struct.unpack("<HH", data)
    return moments.decode_smalldatetime(days, minutes)


def _decode_uuid(data: bytes) -> UUID:
    return UUID(bytes_le=data)


def _decode_unicode(data: bytes) -> str:
    return data.decode("utf-16-le")


def _decode_xml(data: bytes) -> str:
    return data.removeprefix(b"\xff\xfe").decode("utf-16-le")


def _decoder(name: str) -> Decoder:
    return {
        "bit": lambda data: bool(data[0]),
        "tinyint": _decode_integer, "smallint": _decode_integer, "int": _decode_integer, "bigint": _decode_integer,
        "real": _unpacker("<f"), "float": _unpacker("<d"),
        "money": _decode_money, "smallmoney": _decode_smallmoney,
        "datetime": _decode_datetime, "smalldatetime": _decode_smalldatetime,
        "uniqueidentifier": _decode_uuid,
    }[name]  # fmt: skip


def _content_decoder(name: str, collation: bytes) -> Decoder:
    if name in ("nvarchar", "nchar", "ntext"):
        return _decode_unicode
    if name.endswith("binary") or name == "image":
        return bytes
    code_page = "utf-8" if collation and collation[3] & UTF8_FLAG else CODE_PAGE
    return lambda data: data.decode(code_page, "replace")


_READERS: tuple[tuple[Container[int], Callable[[int, MessageReader], WireType]], ...] = (
    (_SIZED, _read_sized),
    (_SHORT, _read_short),
    (_SCALED, _read_scaled),
    (_DECIMALS, _read_decimal),
    ({_DATE}, _read_date),
    (_FIXED, _read_fixed),
    (_LONG, _read_long),
    ({_XML}, _read_xml),
    (_LEGACY, _read_legacy),
    ({_NULL_TYPE}, _read_null),
)
