"""Values of SQL Server Compact's types as the bytes in a packed key, and back.

An encoder takes what SQLite stores (int, float, str, bytes) and what Python has for the type (bool, Decimal,
datetime, UUID). It raises ValueError for a value that the bytes could not give back unchanged.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

_EPOCH = datetime(1900, 1, 1)
_TICKS = 300
_NUMERIC_BYTES = 19


@dataclass(frozen=True)
class Codec:
    """The two directions of one type."""

    encode: Callable[[Any, str], bytes]
    """Return the bytes of a value, given the type as declared."""
    decode: Callable[[bytes], Any]
    """Return the value of the bytes."""


def _integer(size: int, *, signed: bool = True) -> Codec:
    def encode(value: Any, declared: str) -> bytes:
        if not isinstance(value, int):
            raise ValueError("no integer")
        try:
            return value.to_bytes(size, "little", signed=signed)
        except OverflowError:
            return value.to_bytes(8, "little", signed=True)

    def decode(data: bytes) -> int:
        if len(data) not in (size, 8):
            raise ValueError("length of an integer")
        return int.from_bytes(data, "little", signed=signed or len(data) == 8)

    return Codec(encode, decode)


def _encode_bit(value: Any, declared: str) -> bytes:
    if value not in (0, 1) or isinstance(value, float):
        raise ValueError("no bit")
    return bytes([int(value), 0])


def _decode_bit(data: bytes) -> bool:
    if len(data) != 2 or data[0] > 1:
        raise ValueError("no bit")
    return bool(data[0])


def _encode_text(value: Any, declared: str) -> bytes:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value.encode("utf-16-le")


def _encode_binary(value: Any, declared: str) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("no bytes")
    return value


def _encode_guid(value: Any, declared: str) -> bytes:
    if isinstance(value, bytes):
        return UUID(bytes_le=value).bytes_le
    return (value if isinstance(value, UUID) else UUID(str(value))).bytes_le


def _encode_real(value: Any, declared: str) -> bytes:
    """Encode in 4 bytes what they hold exactly, all else in 8."""
    if isinstance(value, bool):
        raise ValueError("no number")
    try:
        if struct.unpack("<f", struct.pack("<f", value))[0] == value:
            return struct.pack("<f", value)
    except OverflowError:
        pass
    return _encode_float(value, declared)


def _encode_float(value: Any, declared: str) -> bytes:
    data = struct.pack("<d", value)
    if isinstance(value, bool) or struct.unpack("<d", data)[0] != value:
        raise ValueError("not exact")
    return data


def _decode_real(data: bytes) -> Any:
    return struct.unpack("<f" if len(data) == 4 else "<d", data)[0]


def _encode_datetime(value: Any, declared: str) -> bytes:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if moment.tzinfo is not None:
        raise ValueError("datetime has no time zone")
    day = (moment - _EPOCH).days
    seconds = (moment - _EPOCH - timedelta(days=day)) / timedelta(seconds=1)
    data = struct.pack("<Ii", round(seconds * _TICKS), day)
    # A datetime shows milliseconds: 0.003 and 0.007 are what one and two ticks of 1/300 second are rounded to.
    if _decode_datetime(data) != moment:
        raise ValueError("not exact")
    return data


def _decode_datetime(data: bytes) -> datetime:
    ticks, day = struct.unpack("<Ii", data)
    return _EPOCH + timedelta(days=day, seconds=ticks // _TICKS, milliseconds=round(ticks % _TICKS * 10 / 3))


def _to_decimal(value: Any) -> Decimal:
    if isinstance(value, bool | str | bytes):
        raise ValueError("no number")
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise ValueError("no number")
    return number


def _scale_exactly(number: Decimal, scale: int) -> int:
    scaled = number.scaleb(scale)
    if scaled != scaled.to_integral_value():
        raise ValueError("too many digits after the point")
    return int(scaled)


def _encode_numeric(value: Any, declared: str) -> bytes:
    found = re.search(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", declared)
    precision, scale = (int(found[1]), int(found[2] or 0)) if found else (18, 0)
    scaled = _scale_exactly(_to_decimal(value), scale)
    if abs(scaled) >= 10**precision:
        raise ValueError("too many digits")
    return bytes([precision, scale, scaled >= 0]) + abs(scaled).to_bytes(12, "little") + bytes(4)


def _decode_numeric(data: bytes) -> Decimal:
    if len(data) != _NUMERIC_BYTES:
        raise ValueError("length of a numeric")
    number = Decimal(int.from_bytes(data[3:15], "little")).scaleb(-data[1])
    return number if data[2] else -number


def _encode_money(value: Any, declared: str) -> bytes:
    return _scale_exactly(_to_decimal(value), 4).to_bytes(8, "little", signed=True)


def _decode_money(data: bytes) -> Decimal:
    if len(data) != 8:
        raise ValueError("length of money")
    return Decimal(int.from_bytes(data, "little", signed=True)).scaleb(-4)


_TEXT = Codec(_encode_text, lambda data: data.decode("utf-16-le"))
_BINARY = Codec(_encode_binary, bytes)
_NUMERIC = Codec(_encode_numeric, _decode_numeric)
_FLOAT = Codec(_encode_float, lambda data: struct.unpack("<d", data)[0])
_GUID = Codec(_encode_guid, lambda data: UUID(bytes_le=data))

CODECS = {
    "tinyint": _integer(1, signed=False),
    "smallint": _integer(2),
    "int": _integer(4),
    "integer": _integer(4),
    "bigint": _integer(8),
    "bit": Codec(_encode_bit, _decode_bit),
    **dict.fromkeys(("nchar", "nvarchar", "ntext", "char", "varchar", "text"), _TEXT),
    **dict.fromkeys(("binary", "varbinary", "image", "blob"), _BINARY),
    "uniqueidentifier": _GUID,
    "real": Codec(_encode_real, _decode_real),
    "float": _FLOAT,
    "double": _FLOAT,
    "datetime": Codec(_encode_datetime, _decode_datetime),
    "numeric": _NUMERIC,
    "decimal": _NUMERIC,
    "money": Codec(_encode_money, _decode_money),
}
"""The types, by the first word of their declaration."""
