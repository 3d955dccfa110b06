"""Declared types of an event's columns (``datetime2(7)``, ``nvarchar(max)``) as columns of Floodmark."""

from __future__ import annotations

import re

from floodmark.core.schema import MAX_LENGTH, SourceColumn
from floodmark.sources.event_stream.faults import PoisonError

_DECLARED = re.compile(
    r"\s*\[?([a-z_][a-z0-9_]*(?: [a-z]+)*)\]?\s*(?:\(\s*(max|[0-9]{1,5})\s*(?:,\s*([0-9]{1,2})\s*)?\))?\s*",
    re.IGNORECASE,
)
_LENGTHS = {
    **dict.fromkeys(("char", "varchar", "binary", "varbinary"), 8000),
    **dict.fromkeys(("nchar", "nvarchar"), 4000),
}
"""The types with a length, and their longest."""
_WITH_MAX = frozenset({"varchar", "nvarchar", "varbinary"})
_FRACTIONS = frozenset({"time", "datetime2", "datetimeoffset"})
_MOST_DIGITS, _DEFAULT_DIGITS = 38, 18
_MOST_FRACTION_DIGITS = 7
_MOST_FLOAT_BITS, _MOST_REAL_BITS = 53, 24
_SYNONYMS = {"dec": "decimal", "integer": "int", "double precision": "float"}


def parse_column(name: str, declared: str, index: int) -> SourceColumn:
    """Return a column of an event. Raises PoisonError, naming the column, for a declaration that has no meaning.

    index: the 0-based place in the table. Types that Floodmark does not know keep their name and have no facets.
    """
    match = _DECLARED.fullmatch(declared)
    if not match:
        raise _unreadable(name)
    base = _SYNONYMS.get(match[1].lower(), match[1].lower())
    first, second = match[2] and match[2].lower(), match[3]
    if base in _LENGTHS:
        return SourceColumn(name, base, index + 1, max_length=_length(name, base, first, second))
    if first == "max":
        raise _unreadable(name)
    if base in ("decimal", "numeric"):
        precision, scale = int(first or _DEFAULT_DIGITS), int(second or 0)
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            raise _unreadable(name)
        return SourceColumn(name, base, index + 1, precision=precision, scale=scale)
    if second:
        raise _unreadable(name)
    if base in _FRACTIONS:
        scale = int(first) if first else _MOST_FRACTION_DIGITS
        if scale > _MOST_FRACTION_DIGITS:
            raise _unreadable(name)
        return SourceColumn(name, base, index + 1, scale=scale)
    if base == "float" and first:
        if not 1 <= int(first) <= _MOST_FLOAT_BITS:
            raise _unreadable(name)
        base = "real" if int(first) <= _MOST_REAL_BITS else base
    return SourceColumn(name, base, index + 1)


def _length(name: str, base: str, first: str | None, second: str | None) -> int:
    if first == "max" and base in _WITH_MAX and not second:
        return MAX_LENGTH
    length = int(first) if first and first != "max" else 1
    if second or first == "max" or not 1 <= length <= _LENGTHS[base]:
        raise _unreadable(name)
    return length


def _unreadable(name: str) -> PoisonError:
    return PoisonError(f"column {name} has a declared type that cannot be read")
