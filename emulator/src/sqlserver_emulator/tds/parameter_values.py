"""TYPE_INFO and values as clients send them, in RPC parameters: bytes to ``TsqlType`` and Python values.

Covers every type a client may send but tables (``table_values``); sql_variant and CLR types are refused by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from sqlserver_emulator import code_units
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.system_types import SYSTEM_TYPES
from sqlserver_emulator.system_types.others import VARIANT_VALUES
from sqlserver_emulator.system_types.record import Declared, SystemType
from sqlserver_emulator.system_types.wire import Form, Packing
from sqlserver_emulator.tds import moments
from sqlserver_emulator.tds.reading import MessageReader, ProtocolError
from sqlserver_emulator.tds.type_info import CODE_PAGE, PLP_LENGTH, UTF8_FLAG
from sqlserver_emulator.types import MAX_LENGTH, TsqlType

Decoder: TypeAlias = Callable[[bytes], object]

_NULL_LENGTH = 0xFFFF
_NULL_PLP = 0xFFFF_FFFF_FFFF_FFFF
_UNKNOWN_PLP = 0xFFFF_FFFF_FFFF_FFFE
_COLLATION_BYTES = 5


def _by_token(form: Form) -> dict[int, SystemType]:
    """Return the types of a form by token; those that borrow another's token never come from a client."""
    return {t.wire.token: t for t in SYSTEM_TYPES if t.wire.form is form and not t.wire.announced_as}


def _by_older_token(form: Form) -> dict[int, SystemType]:
    return {token: t for t in SYSTEM_TYPES if t.wire.form is form for token in t.wire.older_tokens}


_REFUSED = {
    0xF3: "tables in place of the columns of a table",
    0xF0: "parameters of a CLR type",
    **dict.fromkeys(_by_token(Form.VARIANT), VARIANT_VALUES),
}
_FIXED = {t.wire.fixed_token: t for t in SYSTEM_TYPES if t.wire.fixed_token is not None}
_SIZED = {
    token: {t.wire.size: t for t in SYSTEM_TYPES if t.wire.form is Form.SIZED and t.wire.token == token}
    for token in _by_token(Form.SIZED)
}
_DECIMALS = _by_token(Form.DECIMAL) | _by_older_token(Form.DECIMAL)
_SCALED = _by_token(Form.SCALED)
_SHORT = _by_token(Form.SHORT)
_LEGACY = _by_older_token(Form.SHORT)
_LONG = _by_token(Form.LONG)
_BARE = _by_token(Form.BARE)
_XML = _by_token(Form.XML)
_NULL_TYPE = 0x1F


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
    record = _FIXED[token]
    return WireType(_declared(record), lambda reader: reader.read_bytes(record.wire.size), _decoder(record))


def _read_sized(token: int, reader: MessageReader) -> WireType:
    size = reader.read_u8()
    record = _SIZED[token].get(size)
    if record is None:
        raise ProtocolError(f"type 0x{token:02X} of {size} bytes")
    return WireType(_declared(record), _read_byte_length, _decoder(record))


def _declared(record: SystemType) -> TsqlType:
    """Return the type as it is declared without facets: float is float(53)."""
    return TsqlType(record.name, precision=record.facets.precision if record.declared is Declared.BITS else 0)


def _read_decimal(token: int, reader: MessageReader) -> WireType:
    _size, precision, scale = reader.read_u8(), reader.read_u8(), reader.read_u8()
    if not 1 <= precision <= 38 or scale > precision:
        raise ProtocolError(f"decimal({precision},{scale})")
    type_ = TsqlType(_DECIMALS[token].name, precision=precision, scale=scale)
    return WireType(type_, _read_byte_length, lambda data: _decode_decimal(data, scale))


def _read_scaled(token: int, reader: MessageReader) -> WireType:
    scale = reader.read_u8()
    if scale > 7:
        raise ProtocolError(f"scale {scale}")
    record = _SCALED[token]
    decode = _SCALED_DECODERS[record.wire.packing]
    return WireType(TsqlType(record.name, scale=scale), _read_byte_length, lambda data: decode(data, scale))


def _read_short(token: int, reader: MessageReader) -> WireType:
    record, size = _SHORT[token], reader.read_u16()
    collation = reader.read_bytes(_COLLATION_BYTES) if record.has_collation else b""
    length = MAX_LENGTH if size == PLP_LENGTH else max(size // record.unit_bytes, 1)
    read = _read_plp if size == PLP_LENGTH else _read_short_length
    return WireType(TsqlType(record.name, length), read, _content_decoder(record, collation))


def _read_legacy(token: int, reader: MessageReader) -> WireType:
    """The types of TDS 4 with one length byte; NULL is the length 0."""
    record, size = _LEGACY[token], reader.read_u8()
    return WireType(TsqlType(record.name, max(size, 1)), _read_byte_length, _content_decoder(record, b""))


def _read_long(token: int, reader: MessageReader) -> WireType:
    record = _LONG[token]
    reader.read_u32()
    collation = reader.read_bytes(_COLLATION_BYTES) if record.has_collation else b""
    return WireType(TsqlType(record.name), _read_long_length, _content_decoder(record, collation))


def _read_xml(token: int, reader: MessageReader) -> WireType:
    if reader.read_u8():
        raise NotSupportedByEmulatorError("xml parameters with a schema collection")
    return WireType(TsqlType(_XML[token].name), _read_plp, _decoder(_XML[token]))


def _read_bare(token: int, _reader: MessageReader) -> WireType:
    return WireType(TsqlType(_BARE[token].name), _read_byte_length, _decoder(_BARE[token]))


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


def _decode_integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=len(data) > 1)


def _decode_decimal(data: bytes, scale: int) -> Decimal:
    magnitude = int.from_bytes(data[1:], "little")
    digits = tuple(map(int, str(magnitude)))
    return Decimal((0 if data[0] else 1, digits, -scale))


def _decode_money(data: bytes) -> Decimal:
    if len(data) == 4:
        (number,) = struct.unpack("<i", data)
    else:
        high, low = struct.unpack("<iI", data)
        number = high << 32 | low
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
    return code_units.from_utf16(data)


def _decode_xml(data: bytes) -> str:
    return code_units.from_utf16(data.removeprefix(b"\xff\xfe"))


def _decode_float(data: bytes) -> float:
    number: float = struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
    return number


_SCALED_DECODERS: dict[Packing, Callable[[bytes, int], object]] = {
    Packing.TIME: moments.decode_time,
    Packing.DATE_TIME: moments.decode_datetime2,
    Packing.DATE_TIME_OFFSET: moments.decode_datetimeoffset,
}
_DECODERS: dict[Packing, Decoder] = {
    Packing.BIT: lambda data: bool(data[0]),
    Packing.INTEGER: _decode_integer,
    Packing.FLOAT: _decode_float,
    Packing.MONEY: _decode_money,
    Packing.DATE: moments.decode_date,
    Packing.TICKS: _decode_datetime,
    Packing.MINUTES: _decode_smalldatetime,
    Packing.GUID: _decode_uuid,
    Packing.UNICODE: _decode_unicode,
    Packing.XML: _decode_xml,
    Packing.BYTES: bytes,
}


def _decoder(record: SystemType) -> Decoder:
    return _DECODERS[record.wire.packing]


def _content_decoder(record: SystemType, collation: bytes) -> Decoder:
    if record.wire.packing is not Packing.CODE_PAGE:
        return _decoder(record)
    code_page = "utf-8" if collation and collation[3] & UTF8_FLAG else CODE_PAGE
    return lambda data: code_units.from_code_page(data, code_page)


_READERS: tuple[tuple[Container[int], Callable[[int, MessageReader], WireType]], ...] = (
    (_SIZED, _read_sized),
    (_SHORT, _read_short),
    (_SCALED, _read_scaled),
    (_DECIMALS, _read_decimal),
    (_BARE, _read_bare),
    (_FIXED, _read_fixed),
    (_LONG, _read_long),
    (_XML, _read_xml),
    (_LEGACY, _read_legacy),
    ({_NULL_TYPE}, _read_null),
)
