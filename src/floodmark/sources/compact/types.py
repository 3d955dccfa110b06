"""The types of columns in SQLite files, as the source's types that Floodmark knows, and the conversion of values.

SQLite does not enforce declared types: a value that does not fit its column's type is an error, never another value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from floodmark.core.schema import EXACT_COLLATION, SourceColumn

_DECLARED = re.compile(r"\s*([a-z_ ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(?:\s+rowguidcol)?\s*", re.IGNORECASE)
_MOST_DIGITS = 38
_EXACT = Context(prec=_MOST_DIGITS + 1)
_NAMED = {
    **dict.fromkeys(("bit", "bool", "boolean"), "bit"),
    **dict.fromkeys(("uniqueidentifier", "guid", "uuid"), "uniqueidentifier"),
    **dict.fromkeys(("datetime", "datetime2", "smalldatetime", "timestamp"), "datetime2"),
    "date": "date",
    "rowversion": "bigint",
}
_AFFINITIES = (
    # Whatever the name says, SQLite stores 64 bits.
    ("int", "bigint"),
    ("real", "float"),
    ("floa", "float"),
    ("doub", "float"),
    ("blob", "varbinary"),
    ("binary", "varbinary"),
    ("image", "varbinary"),
)
"""The part of a declared type that decides, and the type."""
_DECIMALS = {"decimal", "numeric", "dec"}
_MONEY = (19, 4)


class ValueRefusedError(Exception):
    """A value that does not fit its column's type. The text names no value."""


def source_column(name: str, declared: str, ordinal: int, *, nullable: bool) -> SourceColumn:
    """Return a column of a file. A type that SQLite gives no meaning is text."""
    match = _DECLARED.fullmatch(declared)
    base = " ".join(match[1].lower().split()) if match else declared.lower()
    precision, scale = (int(match[2] or 0), int(match[3] or 0)) if match else (0, 0)
    if base == "money":
        precision, scale = _MONEY
    if base in _DECIMALS or base == "money":
        # Without digits, SQLite stores any number.
        kind = "decimal" if 0 < precision <= _MOST_DIGITS else "nvarchar"
        return SourceColumn(
            name, kind, ordinal, precision=precision, scale=scale, nullable=nullable, collation=EXACT_COLLATION
        )
    kind = _type_name(base)
    scale = 6 if kind == "datetime2" else 0
    return SourceColumn(name, kind, ordinal, scale=scale, nullable=nullable, collation=EXACT_COLLATION)


def _type_name(base: str) -> str:
    """Return the name of a type. Beyond names of SQL Server's types, the rules of SQLite's affinity apply."""
    if base in _NAMED:
        return _NAMED[base]
    return next((kind for part, kind in _AFFINITIES if part in base), "nvarchar")


def converter(column: SourceColumn) -> Callable[[Any], Any]:
    """Return the function that makes of a stored value the one of a batch. It raises ValueRefusedError."""
    convert = _CONVERTERS[column.type_name]
    if column.type_name == "decimal":
        quantum = Decimal(1).scaleb(-column.scale)

        def to_decimal(value: Any) -> Decimal:
            return _decimal(value, quantum, column.precision)

        convert = to_decimal

    def checked(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (ValueError, TypeError, InvalidOperation, UnicodeError):
            stored = type(value).__name__
            raise ValueRefusedError(
                f"column {column.name} has a value (stored as {stored}) that is no {column.declared_type}"
            ) from None

    return checked


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _bit(value: Any) -> bool:
    if value not in (0, 1) or type(value) is not int:
        raise ValueError
    return bool(value)


def _float(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)


def _decimal(value: Any, quantum: Decimal, precision: int) -> Decimal:
    if type(value) not in (int, float, str):
        raise TypeError
    # A number that SQLite stores as binary floating point is what its shortest text says.
    found = Decimal(str(value))
    exact = found.quantize(quantum, context=_EXACT)
    if exact != found or len(exact.as_tuple().digits) > precision:
        raise ValueError
    return exact


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError
    text = str(value)
    text.encode()  # bytes that are no UTF-8 arrive as lone surrogates
    return text


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, str)):
        raise TypeError
    return value.encode() if isinstance(value, str) else value


def _guid(value: Any) -> str:
    return str(UUID(bytes_le=value) if isinstance(value, bytes) else UUID(value))


def _time(value: Any) -> datetime:
    found = datetime.fromisoformat(value)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _date(value: Any) -> date:
    return date.fromisoformat(value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "bigint": _integer,
    "bit": _bit,
    "float": _float,
    "decimal": _text,
    "nvarchar": _text,
    "varbinary": _bytes,
    "uniqueidentifier": _guid,
    "datetime2": _time,
    "date": _date,
}
