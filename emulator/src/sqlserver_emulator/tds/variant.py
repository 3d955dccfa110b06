"""sql_variant values: the base type travels with every value. SERVERPROPERTY and the like return this type."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.tds.moments import encode_datetime2, encode_datetimeoffset, encode_time
from sqlserver_emulator.tds.type_info import COLLATION

_LARGEST_VALUE_BYTES = 8000
_DECIMAL_MAGNITUDE_BYTES = 16
_SCALE = 7


def encode_variant(value: object) -> bytes:
    """Length, base type, its properties, and the value; the base type is chosen by the Python type."""
    token, properties, data = _parts(value)
    if len(data) > _LARGEST_VALUE_BYTES:
        raise NotSupportedByEmulatorError(f"a sql_variant value of {len(data)} bytes")
    return struct.pack("<IBB", 2 + len(properties) + len(data), token, len(properties)) + properties + data


def _parts(value: object) -> tuple[int, bytes, bytes]:
    for kind, parts in _BY_KIND:
        if isinstance(value, kind):
            return parts(value)
    raise NotSupportedByEmulatorError(f"a sql_variant of {type(value).__name__}")


def _integer_parts(value: int) -> tuple[int, bytes, bytes]:
    if -(2**31) <= value < 2**31:
        return 0x38, b"", struct.pack("<i", value)
    return 0x7F, b"", struct.pack("<q", value)


def _datetime_parts(value: datetime) -> tuple[int, bytes, bytes]:
    if value.tzinfo is None:
        return 0x2A, bytes((_SCALE,)), encode_datetime2(value, _SCALE)
    return 0x2B, bytes((_SCALE,)), encode_datetimeoffset(value, _SCALE)


def _decimal_parts(value: Decimal) -> tuple[int, bytes, bytes]:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise NotSupportedByEmulatorError(f"a sql_variant of {value}")
    magnitude = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    data = bytes((1 - sign,)) + magnitude.to_bytes(_DECIMAL_MAGNITUDE_BYTES, "little")
    return 0x6C, bytes((38, max(-exponent, 0))), data


# bool before int and datetime before date: the former are subclasses of the latter.
_BY_KIND: tuple[tuple[type, Callable[[Any], tuple[int, bytes, bytes]]], ...] = (
    (bool, lambda value: (0x32, b"", bytes((value,)))),
    (int, _integer_parts),
    (float, lambda value: (0x3E, b"", struct.pack("<d", value))),
    (Decimal, _decimal_parts),
    (str, lambda value: (0xE7, COLLATION + struct.pack("<H", _LARGEST_VALUE_BYTES), value.encode("utf-16-le"))),
    (bytes, lambda value: (0xA5, struct.pack("<H", _LARGEST_VALUE_BYTES), value)),
    (UUID, lambda value: (0x24, b"", value.bytes_le)),
    (datetime, _datetime_parts),
    (date, lambda value: (0x28, b"", (value.toordinal() - 1).to_bytes(3, "little"))),
    (time, lambda value: (0x29, bytes((_SCALE,)), encode_time(value, _SCALE))),
)
