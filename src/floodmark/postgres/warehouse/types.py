"""PostgreSQL's names for the warehouse types, and which type can be widened to which without losing a value."""

from __future__ import annotations

import re

from floodmark.core.types import Kind, WarehouseType

_NAMES = {
    Kind.BOOLEAN: "boolean",
    Kind.INT16: "smallint",
    Kind.INT32: "integer",
    Kind.INT64: "bigint",
    Kind.FLOAT32: "real",
    Kind.FLOAT64: "double precision",
    Kind.TEXT: "text",
    Kind.DATE: "date",
    Kind.TIME: "time(6) without time zone",
    Kind.TIMESTAMP: "timestamp(6) without time zone",
    Kind.TIMESTAMP_TZ: "timestamp(6) with time zone",
    Kind.UUID: "uuid",
    Kind.BYTES: "bytea",
}
_INTEGER_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_VARCHAR = re.compile(r"character varying\((\d+)\)")
_MOMENT = re.compile(r"(time|timestamp)(?:\(6\))? (with|without) time zone")


def postgres_type(kind: WarehouseType) -> str:
    """Return the type as ``format_type`` prints it, so that it can be compared with the type of a column."""
    if kind.kind is Kind.DECIMAL:
        return f"numeric({kind.precision},{kind.scale})"
    if kind.kind is Kind.TEXT and kind.length:
        return f"character varying({kind.length})"
    return _NAMES[kind.kind]


def is_moment(name: str) -> bool:
    """Return whether a type, as ``format_type`` prints it, is a time of day or a timestamp."""
    return _MOMENT.fullmatch(name) is not None


def type_holds(wide: str, narrow: str) -> bool:
    """Return whether ``wide`` can hold every value of type ``narrow`` (both as ``format_type`` prints them)."""
    if _plain(wide) == _plain(narrow) or (wide == "text" and _VARCHAR.fullmatch(narrow)):
        return True
    if (into := _VARCHAR.fullmatch(wide)) and (out := _VARCHAR.fullmatch(narrow)):
        return int(into[1]) >= int(out[1])
    if wide == "character varying":
        return _VARCHAR.fullmatch(narrow) is not None
    if wide == "double precision":
        return narrow == "real"
    if narrow in _INTEGER_DIGITS and wide in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[wide] >= _INTEGER_DIGITS[narrow]
    return _numeric_holds(wide, narrow)


def _numeric_holds(wide: str, narrow: str) -> bool:
    out = _NUMERIC.fullmatch(narrow)
    if not out and narrow not in _INTEGER_DIGITS:
        return False
    if wide == "numeric":
        return True
    into = _NUMERIC.fullmatch(wide)
    if not into:
        return False
    digits, scale = (int(out[1]) - int(out[2]), int(out[2])) if out else (_INTEGER_DIGITS[narrow], 0)
    return int(into[1]) - int(into[2]) >= digits and int(into[2]) >= scale


def _plain(name: str) -> str:
    # PostgreSQL keeps six digits by default.
    match = _MOMENT.fullmatch(name)
    return f"{match[1]} {match[2]} time zone" if match else name
