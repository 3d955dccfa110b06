"""The system types in PostgreSQL: ``sql/types.sql``, filled in from the records.

What the catalog's views say of a type is thereby the same that the wire and the describing procedures say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Final

from sqlserver_emulator.best_fit import BEST_FIT
from sqlserver_emulator.collations import DEFAULT_COLLATION, Collation, all_collations
from sqlserver_emulator.engine.names import quote_literal
from sqlserver_emulator.system_types import SYSTEM_TYPES
from sqlserver_emulator.system_types.record import DECIMAL, FLOAT, INTEGER, TEMPORAL, Declared, SystemType


def _rows() -> str:
    """Return the rows in the order of sys.types, which clients see where they ask for no order."""
    return ", ".join(
        f"({quote_literal(type.name)}, {quote_literal(type.catalog_name)}, {type.type_id}, {type.user_type_id},"
        f" {type.facets.max_length}, {type.facets.precision}, {type.facets.scale})"
        for type in sorted(SYSTEM_TYPES, key=lambda type: type.user_type_id)
    )


def _names(holds: Callable[[SystemType], bool]) -> str:
    return ", ".join(quote_literal(type.name) for type in SYSTEM_TYPES if holds(type))


def _cases(value: Callable[[SystemType], int | None]) -> str:
    """Return the branches of a CASE by name; types without a value have none."""
    values = [(type.name, value(type)) for type in SYSTEM_TYPES]
    return " ".join(f"WHEN {quote_literal(name)} THEN {number}" for name, number in values if number is not None)


def _collations() -> str:
    return ", ".join(
        f"({quote_literal(c.name)}, {c.comparison_style}, {c.version}, {quote_literal(_description(c))})"
        for c in all_collations()
    )


def _description(collation: Collation) -> str:
    if collation.is_binary:
        return "Latin1-General, binary sort"
    case, accent = (part.endswith("s") for part in collation.style.split("_"))
    return (
        f"Latin1-General, case-{'' if case else 'in'}sensitive, accent-{'' if accent else 'in'}sensitive,"
        " kanatype-insensitive, width-insensitive"
    )


_FILLINGS: Final = {
    "collations": _collations(),
    "server_collation": quote_literal(DEFAULT_COLLATION.name),
    "system_types": _rows(),
    "wide_types": _names(lambda type: type.varies_in_length and type.unit_bytes == 2),
    "narrow_types": _names(lambda type: type.varies_in_length and type.unit_bytes == 1),
    "decimal_types": _names(lambda type: type.declared is Declared.PRECISION_SCALE),
    "fraction_types": _names(lambda type: type.declared is Declared.SCALE),
    "character_types": _names(lambda type: type.has_collation),
    "float_types": _names(lambda type: type.family == FLOAT),
    "exact_types": _names(lambda type: type.is_number and type.family in (INTEGER, DECIMAL)),
    "bytes_after_time": _cases(lambda type: type.moment.more_bytes if type.moment is not None else None),
    "text_widths": _cases(lambda type: type.moment.text_width if type.moment is not None else None),
    "set_fractions": _cases(
        lambda type: type.facets.scale if type.family == TEMPORAL and type.moment is None else None
    ),
}
# Not the second colon of a cast.
_PLACE: Final = re.compile(r"(?<!:):([a-z_]+)\b")


def best_fit_script() -> bytes:
    """Return the script of the function that gives characters which code page 1252 lacks the similar ones."""
    old, new = ("".join(part).replace("'", "''") for part in zip(*BEST_FIT.items(), strict=True))
    return (
        "CREATE OR REPLACE FUNCTION tsql.best_fit(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE"
        f" RETURN pg_catalog.translate(value, '{old}', '{new}');"
    ).encode()


def type_script() -> bytes:
    """Return the script that creates the functions; it runs before those that use them."""
    template = files("sqlserver_emulator.engine").joinpath("sql/types.sql").read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: _FILLINGS[place[1]], template).encode()
