"""The serialized form of a row's key in the tombstone table.

The original documents methods that pack and unpack, not the form. This form is: the number of columns, then for each
column the length of its value and the value; numbers are 32 bits, little-endian. A ROWGUID key is the 16 bytes of the
GUID alone, in the order of .NET. The type of a column is the one that it was declared with.

SQLite stores any value in any column. A key with a value that its declared type cannot hold, such as a text in an int
column, is packed in a form of this library's own: the highest bit of the first number is set, and each value begins
with a letter for its storage class. A key is never lost or changed for that reason. Integers take 8 bytes where their
type is too small.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from compact_tracking.errors import TrackingArgumentError
from compact_tracking.value_codecs import CODECS

_OWN_FORM = 0x80000000
_GUID_BYTES = 16
_PADDED = 0x80


@dataclass(frozen=True)
class KeyType:
    """The declared types of a key's columns."""

    columns: tuple[tuple[str, str], ...]
    """Name and declared type of each column, in key order."""
    is_guid: bool
    """Whether the key is a ROWGUID column."""


def pack_key(key: KeyType, values: Sequence[Any]) -> bytes:
    """Return the packed form of the values of a key, given in key order.

    Raises:
        TrackingArgumentError: too many or too few values, a NULL, or a value of a type that no column can hold.
    """
    if len(values) != len(key.columns):
        raise TrackingArgumentError(f"{len(values)} values were given for a key of {len(key.columns)} columns")
    if any(value is None for value in values):
        raise TrackingArgumentError("a value of the key is NULL: keys have none")
    packed = [_pack_value(declared, value) for (_, declared), value in zip(key.columns, values, strict=True)]
    if None in packed:
        return _pack_own_form(key, values)
    if key.is_guid:
        return packed[0] or b""
    return _join(len(packed), [value for value in packed if value is not None])


def unpack_key(key: KeyType, packed: bytes) -> tuple[Any, ...]:
    """Return the values of a packed key, in key order.

    Raises:
        TrackingArgumentError: the bytes are no key of these columns.
    """
    if key.is_guid and len(packed) == _GUID_BYTES:
        return (UUID(bytes_le=packed),)
    if len(packed) <= 4:
        raise TrackingArgumentError(f"a packed key has more than 4 bytes; {len(packed)} were given")
    (count,) = struct.unpack_from("<I", packed)
    if count & ~_OWN_FORM != len(key.columns):
        raise TrackingArgumentError(f"the packed key has not {len(key.columns)} columns, as the table's")
    parts = _split(packed, len(key.columns))
    try:
        if count & _OWN_FORM:
            return tuple(_unpack_own_value(part) for part in parts)
        return tuple(_unpack_value(declared, part) for (_, declared), part in zip(key.columns, parts, strict=True))
    except (ValueError, KeyError, struct.error, OverflowError) as error:
        raise TrackingArgumentError("a value of the packed key does not fit the type of its column") from error


def _name_type(declared: str) -> str:
    return declared.lower().replace("(", " ").split(" ")[0]


def _pack_value(declared: str, value: Any) -> bytes | None:
    codec = CODECS.get(_name_type(declared))
    if codec is None:
        return None
    try:
        return codec.encode(value, declared)
    except (ValueError, TypeError, ArithmeticError, struct.error):
        return None


def _unpack_value(declared: str, part: bytes) -> Any:
    return CODECS[_name_type(declared)].decode(part)


def _join(count: int, parts: Sequence[bytes]) -> bytes:
    return struct.pack("<I", count) + b"".join(struct.pack("<i", len(part)) + part for part in parts)


def _split(packed: bytes, count: int) -> list[bytes]:
    parts, at = [], 4
    for _ in range(count):
        if at + 4 > len(packed):
            raise TrackingArgumentError("the packed key ends inside a value")
        (length,) = struct.unpack_from("<i", packed, at)
        at += 4
        if length < 0 or at + length > len(packed):
            raise TrackingArgumentError("the packed key ends inside a value")
        parts.append(packed[at : at + length])
        at += length
    if at != len(packed):
        raise TrackingArgumentError("the packed key has bytes after its last value")
    return parts


def _pack_own_form(key: KeyType, values: Sequence[Any]) -> bytes:
    parts = [_pack_own_value(value) for value in values]
    packed = _join(_OWN_FORM | len(parts), parts)
    if key.is_guid and len(packed) == _GUID_BYTES:
        # 16 bytes alone are a GUID; one more byte after the letter makes the difference.
        padded = bytes([parts[0][0] | _PADDED, 0]) + parts[0][1:]
        packed = _join(_OWN_FORM | 1, [padded])
    return packed


def _pack_own_value(value: Any) -> bytes:
    match value:
        case bool() | int():
            return b"i" + int(value).to_bytes(8, "little", signed=True)
        case float():
            return b"f" + struct.pack("<d", value)
        case str():
            return b"t" + value.encode("utf-8", "surrogatepass")
        case bytes():
            return b"b" + value
        case UUID() | datetime():
            return b"t" + str(value).encode("ascii")
        case _:
            raise TrackingArgumentError(f"a key cannot have a value of the type {type(value).__name__}")


def _unpack_own_value(part: bytes) -> Any:
    if not part:
        raise ValueError("no storage class")
    value = part[2:] if part[0] & _PADDED else part[1:]
    match bytes([part[0] & ~_PADDED]):
        case b"i":
            return int.from_bytes(value, "little", signed=True)
        case b"f":
            return struct.unpack("<d", value)[0]
        case b"t":
            return value.decode("utf-8", "surrogatepass")
        case b"b":
            return value
        case _:
            raise ValueError("unknown storage class")
