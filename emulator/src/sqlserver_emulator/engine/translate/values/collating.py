"""SQL that is compared in place of a string, by its collation: see ``engine/sql/collations.sql``.

A binary collation compares strings as they are, except for blanks at their end, which PostgreSQL's bpchar ignores.
"""

from __future__ import annotations

from sqlserver_emulator.collations import DEFAULT_COLLATION, Collated, Collation, conflict, merged
from sqlserver_emulator.engine.translate.values.type_rules import TEXT, is_fixed_text
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import TsqlType

OPERATIONS = {
    "=": "equal to",
    "<>": "not equal to",
    "<": "less than",
    ">": "greater than",
    "<=": "less than or equal to",
    ">=": "greater than or equal to",
}


def collation_of(*values: Value, operation: str) -> Collation:
    """Return the collation by which strings are compared with each other. Raises 468."""
    found: Collated | None = None
    for value in values:
        if not value.is_null:
            found = merged(found, value.collated)
    return known(found, operation)


def known(collated: Collated | None, operation: str) -> Collation:
    """Raise 468 for a conflict. A string of a variant has no collation of its own: it is the server's."""
    if collated is not None and collated.is_conflict and collated.other is not None:
        raise conflict(collated.collation, collated.other, operation)
    return collated.collation if collated is not None else DEFAULT_COLLATION


def merged_collation(values: list[Value]) -> Collated | None:
    """Return the collation of a string made of others."""
    found: Collated | None = None
    for value in values:
        if value.kind == TEXT and not value.is_null:
            found = merged(found, value.collated)
    return found


def key(sql: str, collation: Collation) -> str:
    """The bytes that are compared in place of a string. Not for binary collations."""
    return f"tsql.key_{collation.style}({sql})"


def folded(sql: str, collation: Collation) -> str:
    """The string in the form in which its parts are compared: for LIKE, CHARINDEX and the like."""
    return sql if collation.is_binary else f"tsql.fold_{collation.style}({sql})"


def in_place(sql: str, collation: Collation) -> str:
    """Return what ``folded`` does, with every character in its place; where that cannot be done it is refused."""
    return sql if collation.is_binary else f"tsql.folded_in_place({sql}, {facets(collation)})"


def facets(collation: Collation) -> str:
    """The arguments of functions that find strings: whether case counts, whether accents do."""
    case, accents = (str(part.endswith("s")).lower() for part in collation.style.split("_"))
    return f"{case}, {accents}"


def grouped_type(collated: Collated | None) -> str:
    """The PostgreSQL type as which rows are grouped and distinguished. Raises 446 for a conflict."""
    if collated is not None and collated.is_conflict:
        raise SqlServerError(446, "Cannot resolve collation conflict for DISTINCT operation.", state=9)
    collation = known(collated, "")
    return "bpchar" if collation.is_binary else f"tsql.{collation.style}"


def is_comparable_as_stored(collated: Collated | None, type: TsqlType | None) -> bool:
    """Whether PostgreSQL compares the stored value as the server does: char(n) of a binary collation is bpchar."""
    return is_fixed_text(type) and (collated is not None and collated.collation.is_binary)
