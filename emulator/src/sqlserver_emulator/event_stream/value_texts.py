"""The text of each value in an event (docs/reference/event_stream.md, "Values"), from PostgreSQL's own text."""

from __future__ import annotations

from collections.abc import Callable

from sqlserver_emulator.code_units import to_utf16
from sqlserver_emulator.precise import MINUTE_TICKS, datetime_of, time_of
from sqlserver_emulator.types import TsqlType

LEFT_OUT = frozenset(
    {"geography", "geometry", "hierarchyid", "image", "ntext", "rowversion", "sql_variant", "text", "vector", "xml"}
)
"""Types whose columns are not streamed."""
MOST_BYTES = 1 << 20
"""The length to which a large value is cut."""
_CHARACTERS = frozenset({"char", "nchar", "nvarchar", "sysname", "varchar"})
_MOMENTS = {"datetime": 3, "smalldatetime": 0}
"""Digits of the types that declare none."""
_MOMENT_NAMES = frozenset({"datetime", "datetime2", "datetimeoffset", "smalldatetime", "time"})
Writer = Callable[[str], str]


def value_writer(type_: TsqlType) -> Writer:
    """Return the function that writes a value of this type."""
    name = type_.name
    if name in {"binary", "varbinary"}:
        return _hexadecimal
    if name == "uniqueidentifier":
        return str.upper
    if name in _MOMENT_NAMES:
        return _moment_writer(type_)
    if name in _CHARACTERS:
        return _cut if type_.is_max else _units
    return str


def _moment_writer(type_: TsqlType) -> Writer:
    if type_.name == "datetimeoffset":
        return lambda text: _with_offset(text, type_.scale)
    if type_.has_ticks:
        return _time_ticks if type_.name == "time" else _ticks
    digits = _MOMENTS.get(type_.name, type_.scale)
    return lambda text: _padded(text, digits)


def _units(text: str) -> str:
    """Return a text with the halves of pairs and U+0000 that PostgreSQL holds as other characters."""
    return text if text.isascii() else to_utf16(text).decode("utf-16-le", "surrogatepass")


def _cut(text: str) -> str:
    text = _units(text)
    if len(text) * 2 <= MOST_BYTES:
        return text
    # Whether the server counts characters or bytes is not known; bytes of UTF-16 are assumed.
    return text.encode("utf-16-le", "surrogatepass")[:MOST_BYTES].decode("utf-16-le", "ignore")


def _hexadecimal(text: str) -> str:
    return "0x" + text[2 : 2 + 2 * MOST_BYTES].upper()


def _padded(text: str, digits: int) -> str:
    """Return a moment with as many digits as its type has. PostgreSQL leaves out zeros at the end."""
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction[:digits].ljust(digits, '0')}" if digits else whole


def _ticks(text: str) -> str:
    return datetime_of(int(text)).isoformat(" ")


def _time_ticks(text: str) -> str:
    return time_of(int(text)).isoformat()


def _with_offset(text: str, digits: int) -> str:
    """Return a moment with its offset, from the pair of UTC and minutes that PostgreSQL holds."""
    utc, _, offset = text.strip("()").partition(",")
    minutes = int(offset)
    local = datetime_of(int(utc) + minutes * MINUTE_TICKS).isoformat(" ")
    hours, rest = divmod(abs(minutes), 60)
    return f"{_padded(local, digits)} {'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"
