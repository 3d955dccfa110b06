"""TYPE_INFO: how each T-SQL type announces itself on the wire, and which values it may carry."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

from sqlserver_emulator.collations import DEFAULT_COLLATION
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.system_types import BY_NAME, names_where
from sqlserver_emulator.system_types.binaries import ROWVERSION
from sqlserver_emulator.system_types.record import Declared, SystemType
from sqlserver_emulator.system_types.sizes import decimal_bytes
from sqlserver_emulator.system_types.wire import Form
from sqlserver_emulator.types import TsqlType

COLLATION = DEFAULT_COLLATION.wire
"""Of values that are of no column: the server's."""

CODE_PAGE = "cp1252"
"""The code page of all collations, for char, varchar and text."""

UTF8_FLAG = 0x04
"""In the fourth byte of a collation: fUTF8."""

PLP_LENGTH = 0xFFFF
LARGEST_SHORT_BYTES = 8000
TIMESTAMP_USER_TYPE = ROWVERSION.user_type

POINTER_NAMES = names_where(lambda type: type.wire.form is Form.LONG)
"""The old LOB types, sent with a text pointer."""
SHORT_NAMES = names_where(lambda type: type.wire.form is Form.SHORT)
"""The types that announce their longest value in two bytes."""
WIDE_SHORT_NAMES = names_where(lambda type: type.wire.form is Form.SHORT and type.is_national)
_CHARACTER_NAMES = names_where(lambda type: type.has_collation)
_CHUNKED_NAMES = names_where(lambda type: type.wire.form is Form.XML)
# sysname and rowversion: their length is not declared.
_SET_LENGTH_NAMES = names_where(lambda type: type.wire.form is Form.SHORT and type.declared is not Declared.LENGTH)


def is_plp(type_: TsqlType) -> bool:
    """Sent in chunks, because no length is announced: the (max) types and xml."""
    return type_.name in _CHUNKED_NAMES or (type_.is_max and type_.name in SHORT_NAMES)


def is_character(type_: TsqlType) -> bool:
    return type_.name in _CHARACTER_NAMES


def value_bytes(type_: TsqlType) -> int:
    """The largest value of a type with a two-byte length, in bytes."""
    if type_.name in _SET_LENGTH_NAMES:
        return BY_NAME[type_.name].facets.max_length
    return 2 * type_.length if type_.name in WIDE_SHORT_NAMES else type_.length


@lru_cache(maxsize=1024)
def encode_type_info(type_: TsqlType, collation: bytes = COLLATION) -> bytes:
    """Always the nullable variant of a fixed type: every client takes it for a NOT NULL column too."""
    record = BY_NAME.get(type_.name)
    if record is None:
        raise NotSupportedByEmulatorError(f"sending a column of type {type_}")
    return _ENCODERS[record.wire.form](record, type_, collation)


def _encode_decimal(record: SystemType, type_: TsqlType, _collation: bytes) -> bytes:
    return bytes((record.wire.token, decimal_bytes(type_.precision), type_.precision, type_.scale))


def _encode_long(record: SystemType, _type: TsqlType, collation: bytes) -> bytes:
    head = struct.pack("<BI", record.wire.token, record.wire.size)
    return head + collation if record.has_collation else head


def _encode_short(record: SystemType, type_: TsqlType, collation: bytes) -> bytes:
    largest = PLP_LENGTH if is_plp(type_) else value_bytes(type_)
    if largest != PLP_LENGTH and not 0 < largest <= LARGEST_SHORT_BYTES:
        raise NotSupportedByEmulatorError(f"sending a column of type {type_}")
    head = struct.pack("<BH", record.wire.token, largest)
    return head + collation if record.has_collation else head


_ENCODERS: dict[Form, Callable[[SystemType, TsqlType, bytes], bytes]] = {
    Form.BARE: lambda record, _type, _collation: bytes((record.wire.token,)),
    Form.SIZED: lambda record, _type, _collation: bytes((record.wire.token, record.wire.size)),
    Form.SCALED: lambda record, type_, _collation: bytes((record.wire.token, type_.scale)),
    Form.DECIMAL: _encode_decimal,
    Form.SHORT: _encode_short,
    Form.LONG: _encode_long,
    # No schema collection: the emulator's xml is never typed.
    Form.XML: lambda record, _type, _collation: bytes((record.wire.token, 0)),
    Form.VARIANT: _encode_long,
}
