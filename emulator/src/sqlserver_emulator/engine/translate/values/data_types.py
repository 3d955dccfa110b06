"""The data type written in CAST, CONVERT and the like, as a TsqlType."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import MAX_LENGTH, TsqlType

_SYNONYMS = {
    "integer": "int",
    "dec": "decimal",
    "character": "char",
    "timestamp": "rowversion",
    "national": "nchar",
}
_PLAIN = frozenset(
    (
        "bit", "tinyint", "smallint", "int", "bigint", "money", "smallmoney", "date", "datetime", "smalldatetime",
        "text", "ntext", "image", "uniqueidentifier", "rowversion", "xml", "sql_variant",
    )
)  # fmt: skip
_SIZED = {"char": 8000, "varchar": 8000, "nchar": 4000, "nvarchar": 4000, "binary": 8000, "varbinary": 8000}
_FRACTIONAL = ("time", "datetime2", "datetimeoffset")


def read_data_type(  # noqa: PLR0911  (one return a kind of type)
    node: exp.DataType, user_type: Callable[[str], TsqlType | None], *, default_length: int = 30
) -> TsqlType:
    """``default_length``: of a character or binary type without one: 30 in CAST, 1 in declarations.

    Raises 243 for an unknown type, 131 and 2750 for facets beyond the limits.
    """
    written = str(node.args.get("kind"))
    name = _SYNONYMS.get(written.lower(), written.lower())
    facets = [facet.name for facet in node.expressions]
    if name in _SIZED:
        return _sized(name, facets, default_length)
    if name in _FRACTIONAL:
        return TsqlType(name, scale=int(facets[0]) if facets else 7)
    if name in ("decimal", "numeric"):
        return _decimal(name, facets)
    if name == "float":
        precision = int(facets[0]) if facets else 53
        return TsqlType("real", precision=24) if precision <= 24 else TsqlType("float", precision=53)
    if name == "real":
        return TsqlType("real", precision=24)
    if name == "sysname":
        return TsqlType("sysname", 128)
    if name in _PLAIN:
        return TsqlType(name)
    alias = user_type(written)
    if alias is None:
        raise SqlServerError(243, f"Type {written} is not a defined system type.")
    return alias


def _sized(name: str, facets: list[str], default_length: int) -> TsqlType:
    if not facets:
        return TsqlType(name, default_length)
    if facets[0].lower() == "max":
        return TsqlType(name, MAX_LENGTH)
    length = int(facets[0])
    if not 0 < length <= _SIZED[name]:
        raise SqlServerError(
            131,
            f"The size ({length}) given to the type '{name}' exceeds the maximum allowed for any data type (8000).",
            severity=15,
        )
    return TsqlType(name, length)


def _decimal(name: str, facets: list[str]) -> TsqlType:
    precision = int(facets[0]) if facets else 18
    scale = int(facets[1]) if len(facets) > 1 else 0
    if not 0 < precision <= 38 or scale > precision:
        message = f"Specified column precision {precision} is greater than the maximum precision of 38."
        raise SqlServerError(2750, f"Column or parameter #0: {message}")
    return TsqlType(name, precision=precision, scale=scale)
