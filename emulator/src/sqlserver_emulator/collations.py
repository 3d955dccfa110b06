"""Collations: their names, what counts as equal under them, and how the wire and COLLATIONPROPERTY describe them.

Known are the Latin collations of code page 1252. Another one that SQL Server has is refused by name; a name that is no
collation's is error 448. How strings are compared is ``engine/sql/collations.sql``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

BINARY: Final = "bin"
"""The style of the binary collations; the others' are ci_as, cs_as, ci_ai and cs_ai."""

_KNOWN: Final = re.compile(
    r"(?P<family>SQL_Latin1_General_CP1|Latin1_General(?:_100)?)_(?:(?P<case>C[IS])_(?P<accent>A[IS])|(?P<binary>BIN2?))$",
    re.IGNORECASE,
)
_SHAPE: Final = re.compile(
    r"[A-Z][A-Z0-9_]*_(?:C[IS]_A[IS](?:_(?:KS|WS|SC|VSS|UTF8|KS_WS))*|BIN2?(?:_UTF8)?)$", re.IGNORECASE
)
_SORT_IDS: Final = {"cs_as": 51, "ci_as": 52, "ci_ai": 54}
"""Of the SQL_ collations, which have the numbers of SQL Server's old sort orders."""
_LCID: Final = 1033
IGNORE_CASE, _IGNORE_ACCENT, _IGNORE_KANA, _IGNORE_WIDTH = 1, 2, 0x10000, 0x20000
_VERSION_100: Final = 2


@dataclass(frozen=True, slots=True)
class Collation:
    """A collation that the emulator has."""

    name: str
    style: str
    """``BINARY``, ci_as, cs_as, ci_ai or cs_ai."""
    comparison_style: int
    """COLLATIONPROPERTY's: what does not count."""
    version: int
    wire: bytes
    """The five bytes of TDS: LCID, flags and version, sort id."""

    @property
    def is_binary(self) -> bool:
        return self.style == BINARY


@lru_cache(maxsize=256)
def find_collation(name: str) -> Collation:
    """Return the collation of a name in any case. Raises 448 where there is none; refuses those of other languages."""
    found = _KNOWN.match(name)
    if found is None or name.lower() == "sql_latin1_general_cp1_cs_ai":
        if found is None and _SHAPE.match(name):
            raise NotSupportedByEmulatorError(f"the collation {name}")
        raise SqlServerError(448, f"Invalid collation '{name}'.", severity=16)
    family = next(f for f in _FAMILIES if f.lower() == found["family"].lower())
    if found["binary"]:
        if family.startswith("SQL_"):
            raise SqlServerError(448, f"Invalid collation '{name}'.", severity=16)
        return _made(family, found["binary"].upper(), BINARY)
    ending = f"{found['case']}_{found['accent']}".upper()
    return _made(family, ending, ending.lower())


_FAMILIES: Final = ("SQL_Latin1_General_CP1", "Latin1_General_100", "Latin1_General")


def _made(family: str, ending: str, style: str) -> Collation:
    version = _VERSION_100 if family.endswith("_100") else 0
    ignored = 0
    if style != BINARY:
        ignored = _IGNORE_KANA | _IGNORE_WIDTH
        ignored |= IGNORE_CASE if style.startswith("ci") else 0
        ignored |= _IGNORE_ACCENT if style.endswith("ai") else 0
    flags = _wire_flags(ignored) | {"BIN": 0x10, "BIN2": 0x20}.get(ending, 0)
    sort_id = _SORT_IDS.get(style, 0) if family.startswith("SQL_") else 0
    wire = (_LCID | flags << 20 | version << 28).to_bytes(4, "little") + bytes((sort_id,))
    return Collation(f"{family}_{ending}", style, ignored, version, wire)


def _wire_flags(ignored: int) -> int:
    """Return the flags in the order of TDS: case, accent, kana, width."""
    order = (IGNORE_CASE, _IGNORE_ACCENT, _IGNORE_KANA, _IGNORE_WIDTH)
    return sum(1 << bit for bit, flag in enumerate(order) if ignored & flag)


DEFAULT_COLLATION: Final = find_collation("SQL_Latin1_General_CP1_CI_AS")
"""The server's collation, and that of databases that name none."""


def all_collations() -> list[Collation]:
    """Return the collations of fn_helpcollations, in the order of their names."""
    endings = ("BIN", "BIN2", "CI_AI", "CI_AS", "CS_AI", "CS_AS")
    made = [_made(f, e, BINARY if e.startswith("BIN") else e.lower()) for f in _FAMILIES[1:] for e in endings]
    made += [_made(_FAMILIES[0], e, e.lower()) for e in ("CI_AI", "CI_AS", "CS_AS")]
    return sorted(made, key=lambda collation: collation.name.lower())


IMPLICIT, NONE, EXPLICIT = 1, 2, 3
"""The ranks of T-SQL's collation precedence, over 0, a default that anything replaces."""


@dataclass(frozen=True, slots=True)
class Collated:
    """The collation of an expression, by the rules of collation precedence. ``other``: what it conflicts with."""

    collation: Collation
    rank: int = 0
    other: Collation | None = None

    @property
    def is_conflict(self) -> bool:
        return self.rank == NONE and self.other is not None


def implicit(collation: Collation | None) -> Collated | None:
    """Return the collation of a column."""
    return Collated(collation, IMPLICIT) if collation is not None else None


def as_column(collated: Collated | None) -> Collated | None:
    """Return the collation of an expression as that of the column of a query; a conflict stays one."""
    if collated is None or collated.rank == NONE:
        return collated
    return Collated(collated.collation, IMPLICIT if collated.rank else 0)


def merged(left: Collated | None, right: Collated | None) -> Collated | None:
    """Return the collation of an expression over two. Raises 468 for two explicit ones that differ."""
    if left is None or right is None:
        return left or right
    if left.rank != right.rank:
        return left if left.rank > right.rank else right
    if left.collation == right.collation or left.rank == NONE:
        return left
    if left.rank == EXPLICIT:
        raise conflict(left.collation, right.collation, "")
    return Collated(left.collation, NONE, right.collation) if left.rank == IMPLICIT else left


def conflict(left: Collation, right: Collation, operation: str) -> SqlServerError:
    """Return error 468."""
    where = f" in the {operation} operation" if operation else ""
    message = f'Cannot resolve the collation conflict between "{left.name}" and "{right.name}"{where}.'
    return SqlServerError(468, message, severity=16, state=9)
