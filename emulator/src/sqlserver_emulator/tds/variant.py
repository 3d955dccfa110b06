"""sql_variant values: the base type travels with every value. SERVERPROPERTY and the like return this type."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlserver_emulator import code_units
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.system_types.binaries import VARBINARY
from sqlserver_emulator.system_types.moments import DATE, DATETIME2, DATETIMEOFFSET, TIME
from sqlserver_emulator.system_types.numbers import BIGINT, BIT, FLOAT_TYPE, INT, NUMERIC_TYPE
from sqlserver_emulator.system_types.others import UNIQUEIDENTIFIER
from sqlserver_emulator.system_types.record import SystemType
from sqlserver_emulator.system_types.texts import NVARCHAR
from sqlserver_emulator.tds.moments import encode_datetime2, encode_datetimeoffset, encode_time
from sqlserver_emulator.tds.type_info import COLLATION

_LARGEST_VALUE_BYTES = 8000
_LARGEST = struct.pack("<H", _LARGEST_VALUE_BYTES)
_DECIMAL_MAGNITUDE_BYTES = 16
_SCALE = 7


def encode_variant(value: object) -> bytes:
    """Length, base type, its properties, and the value; the base type is chosen by the Python type."""
    token, properties, data = _parts(value)
    if len(data) > _LARGEST_VALUE_BYTES:
        raise NotSupportedByEmulatorError(f"a sql_variant value of {len(data)} bytes")
    return struct.pack("<IBB", 2 + len(properties) + len(data), token, len(properties)) + properties + data


def _base(type_: SystemType) -> int:
    """Return the token of a base type: a value that is not NULL needs no nullable type."""
    return type_.wire.token if type_.wire.fixed_token is None else type_.wire.fixed_token


def _parts(value: object) -> tuple[int, bytes, bytes]:
    for kind, parts in _BY_KIND:
        if isinstance(value, kind):
            return parts(value)
    raise NotSupportedByEmulatorError(f"a sql_variant of {type(value).__name__}")


def _integer_parts(value: int) -> tuple[int, bytes, bytes]:
    if -(2**31) <= value < 2**31:
        return _base(INT), b"", struct.pack("<i", value)
    return _base(BIGINT), b"", struct.pack("<q", value)


def _datetime_parts(value: datetime) -> tuple[int, bytes, bytes]:
    if value.tzinfo is None:
        return _base(DATETIME2), bytes((_SCALE,)), encode_datetime2(value, _SCALE)
    return _base(DATETIMEOFFSET), bytes((_SCALE,)), encode_datetimeoffset(value, _SCALE)


def _decimal_parts(value: Decimal) -> tuple[int, bytes, bytes]:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise NotSupportedByEmulatorError(f"a sql_variant of {value}")
    magnitude = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    data = bytes((1 - sign,)) + magnitude.to_bytes(_DECIMAL_MAGNITUDE_BYTES, "little")
    return _base(NUMERIC_TYPE), bytes((38, max(-exponent, 0))), data


# bool before int and datetime before date: the former are subclasses of the latter.
_BY_KIND: tuple[tuple[type, Callable[[Any], tuple[int, bytes, bytes]]], ...] = (
    (bool, lambda value: (_base(BIT), b"", bytes((value,)))),
    (int, _integer_parts),
    (float, lambda value: (_base(FLOAT_TYPE), b"", struct.pack("<d", value))),
    (Decimal, _decimal_parts),
    (str, lambda value: (_base(NVARCHAR), COLLATION + _LARGEST, code_units.to_utf16(value))),
    (bytes, lambda value: (_base(VARBINARY), _LARGEST, value)),
    (UUID, lambda value: (_base(UNIQUEIDENTIFIER), b"", value.bytes_le)),
    (datetime, _datetime_parts),
    (date, lambda value: (_base(DATE), b"", (value.toordinal() - 1).to_bytes(3, "little"))),
    (time, lambda value: (_base(TIME), bytes((_SCALE,)), encode_time(value, _SCALE))),
)
