"""Declared data types: `nvarchar(max)`, `DEC(10, 2)`, `double precision`, `[sys].[int]` to ``TsqlType``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax import lexer
from sqlserver_emulator.syntax.lexer import IDENTIFIERS, identifier_value
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.keywords import word_set
from sqlserver_emulator.types import MAX_LENGTH, SYSNAME, TsqlType

_PLAIN: Final = {
    name: TsqlType(name)
    for name in word_set(
        """bit tinyint smallint int bigint money smallmoney date datetime smalldatetime uniqueidentifier rowversion xml
        text ntext image sql_variant"""
    )
} | {
    "integer": TsqlType("int"),
    "timestamp": TsqlType("rowversion"),
    "sysname": SYSNAME,
    "real": TsqlType("real", precision=24),
}
_SIZED: Final = {
    "char": ("char", 8000), "character": ("char", 8000), "varchar": ("varchar", 8000),
    "nchar": ("nchar", 4000), "nvarchar": ("nvarchar", 4000), "binary": ("binary", 8000),
    "varbinary": ("varbinary", 8000),
}  # fmt: skip
_VARYING: Final = {"char": "varchar", "nchar": "nvarchar", "binary": "varbinary"}
_UNKNOWN_TYPE: Final = 2715
_LOB: Final = frozenset(("text", "ntext", "image"))


def take_type(cursor: Cursor) -> TsqlType:
    """The type at the cursor. Raises 2715 for a name that is no system type, 1001/1002/131 for bad facets."""
    line = cursor.line
    name = _type_name(cursor)
    if name == "national":
        name = "n" + {"character": "char"}.get(word := _type_name(cursor), word)
    if name == "double":
        cursor.expect("PRECISION")
        return TsqlType("float", precision=53)
    if name in _SIZED:
        return _sized(cursor, *_SIZED[name], line)
    make = _FACETED.get(name)
    if make:
        return make(cursor, name, line)
    if name in _PLAIN:
        return _PLAIN[name]
    raise unknown_type(name, line=line)


def unknown_type(name: str, position: int = 1, line: int = 0) -> SqlServerError:
    message = f"Column, parameter, or variable #{position}: Cannot find data type {name}."
    return SqlServerError(_UNKNOWN_TYPE, message, state=3, line=line)


def take_parameter_type(cursor: Cursor) -> TsqlType:
    """A type that a parameter may have; one that is none of the system's stays a name (``is_user_made``)."""
    start = cursor.at
    try:
        return take_type(cursor)
    except SqlServerError as error:
        if error.number != _UNKNOWN_TYPE:
            raise
    cursor.at = start
    name = _type_name(cursor)
    return TsqlType(name if "." in name else f".{name}")


def is_user_made(type: TsqlType) -> bool:
    """Whether the type is but a name, `schema.name` or `.name`, which only the catalog knows."""
    return "." in type.name


def take_variable_type(cursor: Cursor) -> TsqlType:
    """A type that a local variable may have: not text, ntext or image."""
    line = cursor.line
    found = take_parameter_type(cursor)
    if found.name in _LOB:
        raise SqlServerError(2739, "The text, ntext, and image data types are invalid for local variables.", line=line)
    return found


def _type_name(cursor: Cursor) -> str:
    """The name in lower case, without a leading `sys.`; another schema's name stays whole, so that it is not found."""
    token = cursor.take()
    if token.kind not in IDENTIFIERS:
        raise cursor.syntax_error(cursor.at - 1)
    name = identifier_value(token).lower()
    if cursor.accept("."):
        member = identifier_value(cursor.take()).lower()
        return member if name == "sys" else f"{name}.{member}"
    return name


def _facets(cursor: Cursor, most: int) -> list[int]:
    """The numbers in parentheses after a type name; MAX_LENGTH for max."""
    if not cursor.accept("("):
        return []
    facets: list[int] = []
    while True:
        if cursor.accept("MAX"):
            facets.append(MAX_LENGTH)
        elif cursor.token.kind == lexer.INTEGER:
            facets.append(int(cursor.take().text))
        else:
            raise cursor.syntax_error()
        if cursor.accept(")"):
            break
        cursor.expect(",")
    if len(facets) > most:
        raise cursor.syntax_error(cursor.at - 1)
    return facets


def _sized(cursor: Cursor, name: str, limit: int, line: int) -> TsqlType:
    if cursor.accept("VARYING"):
        name = _VARYING[name]
    (length,) = _facets(cursor, 1) or [1]
    may_be_max = name in ("varchar", "nvarchar", "varbinary")
    if length == MAX_LENGTH and not may_be_max:
        raise cursor.syntax_error(cursor.at - 2)
    if length > limit:
        message = f"The size ({length}) given to the type '{name}' exceeds the maximum allowed ({limit})."
        raise SqlServerError(131, message, severity=15, line=line)
    if length == 0:
        raise SqlServerError(1001, "Line 1: Length or precision specification 0 is invalid.", severity=15, line=line)
    return TsqlType(name, length)


def _decimal(cursor: Cursor, name: str, line: int) -> TsqlType:
    facets = _facets(cursor, 2)
    precision, scale = (*facets, 18, 0)[:2] if len(facets) != 1 else (facets[0], 0)
    return _checked(TsqlType("numeric" if name == "numeric" else "decimal", precision=precision, scale=scale), line)


def _checked(type: TsqlType, line: int) -> TsqlType:
    if not 1 <= type.precision <= 38:
        message = f"Specified column precision {type.precision} is greater than the maximum precision of 38."
        raise SqlServerError(2750, message, line=line)
    if type.scale > type.precision:
        message = f"The scale ({type.scale}) must be less than or equal to the precision ({type.precision})."
        raise SqlServerError(183, message, severity=15, line=line)
    return type


def _float(cursor: Cursor, name: str, line: int) -> TsqlType:
    (precision,) = _facets(cursor, 1) or [53]
    if not 1 <= precision <= 53:
        message = f"Line {line}: Length or precision specification {precision} is invalid."
        raise SqlServerError(1001, message, severity=15, line=line)
    return TsqlType("real", precision=24) if precision <= 24 else TsqlType("float", precision=53)


def _fractional(cursor: Cursor, name: str, line: int) -> TsqlType:
    (scale,) = _facets(cursor, 1) or [7]
    if not 0 <= scale <= 7:
        raise SqlServerError(1002, f"Line {line}: Specified scale {scale} is invalid.", severity=15, line=line)
    return TsqlType(name, scale=scale)


_FACETED: Final[dict[str, Callable[[Cursor, str, int], TsqlType]]] = {
    "decimal": _decimal,
    "dec": _decimal,
    "numeric": _decimal,
    "float": _float,
    "time": _fractional,
    "datetime2": _fractional,
    "datetimeoffset": _fractional,
}
