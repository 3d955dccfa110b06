"""The data type written in CAST, CONVERT and the like, as a TsqlType."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.known_names import TYPES
from sqlserver_emulator.system_types import BY_NAME, SYSTEM_TYPES
from sqlserver_emulator.system_types.others import SQL_VARIANT, VARIANT_VALUES
from sqlserver_emulator.system_types.record import Declared
from sqlserver_emulator.types import MAX_LENGTH, TsqlType, plain_type

# Not a synonym of one type in the records: in a declaration CHARACTER or TEXT follows it.
_SYNONYMS = {synonym: type.name for type in SYSTEM_TYPES for synonym in type.synonyms} | {"national": "nchar"}


def read_data_type(
    node: exp.DataType, user_type: Callable[[str], TsqlType | None], *, default_length: int = 30
) -> TsqlType:
    """``default_length``: of a character or binary type without one: 30 in CAST, 1 in declarations.

    Raises 243 for an unknown type, 131 and 2750 for facets beyond the limits.
    """
    written = str(node.args.get("kind"))
    name = _SYNONYMS.get(written.lower(), written.lower())
    facets = [facet.name for facet in node.expressions]
    record = BY_NAME.get(name)
    if record is not None:
        if record.length is not None:
            return _sized(name, facets, default_length, record.length.longest)
        if record is SQL_VARIANT:
            raise NotSupportedByEmulatorError(VARIANT_VALUES)
        return _READERS[record.declared](name, facets)
    alias = user_type(written)
    if alias is None and written.lower() in TYPES:
        raise NotSupportedByEmulatorError(f"the data type {written.lower()}")
    if alias is None:
        raise SqlServerError(243, f"Type {written} is not a defined system type.")
    return alias


def _sized(name: str, facets: list[str], default_length: int, longest: int) -> TsqlType:
    if not facets:
        return TsqlType(name, default_length)
    if facets[0].lower() == "max":
        return TsqlType(name, MAX_LENGTH)
    length = int(facets[0])
    if not 0 < length <= longest:
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


def _float(_name: str, facets: list[str]) -> TsqlType:
    precision = int(facets[0]) if facets else 53
    return TsqlType("real", precision=24) if precision <= 24 else TsqlType("float", precision=53)


_READERS: dict[Declared, Callable[[str, list[str]], TsqlType]] = {
    Declared.PLAIN: lambda name, _facets: plain_type(name),
    Declared.SCALE: lambda name, facets: TsqlType(name, scale=int(facets[0]) if facets else 7),
    Declared.PRECISION_SCALE: _decimal,
    Declared.BITS: _float,
}
