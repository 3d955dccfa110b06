"""TYPE_INFO: how each T-SQL type announces itself on the wire, and which values it may carry."""

from __future__ import annotations

import struct
from functools import lru_cache

from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.types import TsqlType

COLLATION = bytes.fromhex("0904002200")
"""Latin1_General_100_BIN2: LCID 0x0409, flag fBinary2, version 2 (SQL Server 2008 tables), no sort id."""

CODE_PAGE = "cp1252"
"""That collation's code page, for char, varchar and text."""

UTF8_FLAG = 0x04
"""In the fourth byte of a collation: fUTF8."""

PLP_LENGTH = 0xFFFF
LARGEST_SHORT_BYTES = 8000
TIMESTAMP_USER_TYPE = 0x50

INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
FLOAT_BYTES = {"real": 4, "float": 8}
MONEY_BYTES = {"money": 8, "smallmoney": 4}
DATETIME_BYTES = {"datetime": 8, "smalldatetime": 4}
DECIMAL_NAMES = frozenset({"decimal", "numeric"})
UNICODE_NAMES = frozenset({"nchar", "nvarchar", "sysname"})
CODE_PAGE_NAMES = frozenset({"char", "varchar"})
BINARY_NAMES = frozenset({"binary", "varbinary", "rowversion"})
POINTER_NAMES = frozenset({"text", "ntext", "image"})
"""The old LOB types, sent with a text pointer."""

_BYTE_LENGTH_TOKENS = {"decimal": 0x6A, "numeric": 0x6C, "time": 0x29, "datetime2": 0x2A, "datetimeoffset": 0x2B}
_SHORT_LENGTH_TOKENS = {
    "binary": 0xAD, "rowversion": 0xAD, "varbinary": 0xA5,
    "char": 0xAF, "varchar": 0xA7, "nchar": 0xEF, "nvarchar": 0xE7, "sysname": 0xE7,
}  # fmt: skip
_FIXED = {
    **{name: bytes((0x26, size)) for name, size in INTEGER_BYTES.items()},
    **{name: bytes((0x6D, size)) for name, size in FLOAT_BYTES.items()},
    **{name: bytes((0x6E, size)) for name, size in MONEY_BYTES.items()},
    **{name: bytes((0x6F, size)) for name, size in DATETIME_BYTES.items()},
    "bit": b"\x68\x01",
    "date": b"\x28",
    "uniqueidentifier": b"\x24\x10",
    "xml": b"\xf1\x00",
    "sql_variant": struct.pack("<BI", 0x62, 8009),
    "text": struct.pack("<BI", 0x23, 0x7FFFFFFF) + COLLATION,
    "ntext": struct.pack("<BI", 0x63, 0x7FFFFFFE) + COLLATION,
    "image": struct.pack("<BI", 0x22, 0x7FFFFFFF),
}


def decimal_bytes(precision: int) -> int:
    """Sign and magnitude together."""
    if precision <= 9:
        return 5
    if precision <= 19:
        return 9
    return 13 if precision <= 28 else 17


def time_bytes(scale: int) -> int:
    if scale <= 2:
        return 3
    return 4 if scale <= 4 else 5


def is_plp(type_: TsqlType) -> bool:
    """Sent in chunks, because no length is announced: the (max) types and xml."""
    return type_.name == "xml" or (type_.is_max and type_.name in _SHORT_LENGTH_TOKENS)


def is_character(type_: TsqlType) -> bool:
    return type_.name in UNICODE_NAMES or type_.name in CODE_PAGE_NAMES or type_.name in ("text", "ntext")


def value_bytes(type_: TsqlType) -> int:
    """The largest value of a type with a two-byte length, in bytes."""
    if type_.name == "rowversion":
        return 8
    if type_.name == "sysname":
        return 256
    return 2 * type_.length if type_.name in UNICODE_NAMES else type_.length


@lru_cache(maxsize=1024)
def encode_type_info(type_: TsqlType) -> bytes:
    """Always the nullable variant of a fixed type: every client takes it for a NOT NULL column too."""
    name = type_.name
    if name in _FIXED:
        return _FIXED[name]
    if name in DECIMAL_NAMES:
        return bytes((_BYTE_LENGTH_TOKENS[name], decimal_bytes(type_.precision), type_.precision, type_.scale))
    if name in _BYTE_LENGTH_TOKENS:
        return bytes((_BYTE_LENGTH_TOKENS[name], type_.scale))
    if name in _SHORT_LENGTH_TOKENS:
        return _encode_short_length_type(type_)
    raise NotSupportedByEmulatorError(f"sending a column of type {type_}")


def _encode_short_length_type(type_: TsqlType) -> bytes:
    largest = PLP_LENGTH if is_plp(type_) else value_bytes(type_)
    if largest != PLP_LENGTH and not 0 < largest <= LARGEST_SHORT_BYTES:
        raise NotSupportedByEmulatorError(f"sending a column of type {type_}")
    head = struct.pack("<BH", _SHORT_LENGTH_TOKENS[type_.name], largest)
    return head + COLLATION if is_character(type_) else head
