"""Declared data types: `nvarchar(max)`, `DEC(10, 2)`, `double precision`, `[sys].[int]` to ``TsqlType``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax import lexer
from sqlserver_emulator.syntax.lexer import IDENTIFIERS, identifier_value
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.system_types import BY_NAME, SYSTEM_TYPES, names_where
from sqlserver_emulator.system_types.others import SQL_VARIANT, VARIANT_VALUES
from sqlserver_emulator.system_types.record import Declared, Length, SystemType
from sqlserver_emulator.types import MAX_LENGTH, TsqlType, plain_type

_BY_WORD: Final = BY_NAME | {synonym: type for type in SYSTEM_TYPES for synonym in type.synonyms}
_UNKNOWN_TYPE: Final = 2715
_LOB: Final = names_where(lambda type: type.is_legacy_lob)


def take_type(cursor: Cursor) -> TsqlType:
    """The type at the cursor. Raises 2715 for a name that is no system type, 1001/1002/131 for bad facets."""
    line = cursor.line
    name = _type_name(cursor)
    if name == "national":
        name = "n" + {"character": "char"}.get(word := _type_name(cursor), word)
    if name == "double":
        cursor.expect("PRECISION")
        return TsqlType("float", precision=53)
    if name == "xml" and cursor.word == "(":
        raise NotSupportedByEmulatorError("xml with a schema collection")
    record = _BY_WORD.get(name)
    if record is None:
        raise unknown_type(name, line=line)
    return _READERS[record.declared](cursor, record, line)


def unknown_type(name: str, position: int = 1, line: int = 0) -> SqlServerError:
    message = f"Column, parameter, or variable #{position}: Cannot find data type {name}."
    return SqlServerError(_UNKNOWN_TYPE, message, state=3, line=line)


def take_parameter_type(cursor: Cursor) -> TsqlType:
    """A type that a parameter may have; one that is none of the system's stays a name (``is_user_made``)."""
    start = cursor.at
    try:
        return with_values(take_type(cursor))
    except SqlServerError as error:
        if error.number != _UNKNOWN_TYPE:
            raise
    cursor.at = start
    name = _type_name(cursor)
    return TsqlType(name if "." in name else f".{name}")


def with_values(type: TsqlType) -> TsqlType:
    """Return a type that a variable, a parameter or an expression has. Refuses sql_variant."""
    if type.name == SQL_VARIANT.name:
        raise NotSupportedByEmulatorError(VARIANT_VALUES)
    return type


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


def _sized(cursor: Cursor, record: SystemType, line: int) -> TsqlType:
    # CHARACTER VARYING, which after a type that varies already is no type but a name.
    if record.varying and cursor.accept("VARYING"):
        record = BY_NAME[record.varying]
    name, limits = record.name, record.length or Length(0)
    (length,) = _facets(cursor, 1) or [1]
    if length == MAX_LENGTH and not limits.may_be_max:
        raise cursor.syntax_error(cursor.at - 2)
    if length > limits.longest:
        message = f"The size ({length}) given to the type '{name}' exceeds the maximum allowed ({limits.longest})."
        raise SqlServerError(131, message, severity=15, line=line)
    if length == 0:
        raise SqlServerError(1001, "Line 1: Length or precision specification 0 is invalid.", severity=15, line=line)
    return TsqlType(name, length)


def _decimal(cursor: Cursor, record: SystemType, line: int) -> TsqlType:
    facets = _facets(cursor, 2)
    precision, scale = (*facets, 18, 0)[:2] if len(facets) != 1 else (facets[0], 0)
    return _checked(TsqlType(record.name, precision=precision, scale=scale), line)


def _checked(type: TsqlType, line: int) -> TsqlType:
    if not 1 <= type.precision <= 38:
        message = f"Specified column precision {type.precision} is greater than the maximum precision of 38."
        raise SqlServerError(2750, message, line=line)
    if type.scale > type.precision:
        message = f"The scale ({type.scale}) must be less than or equal to the precision ({type.precision})."
        raise SqlServerError(183, message, severity=15, line=line)
    return type


def _float(cursor: Cursor, _record: SystemType, line: int) -> TsqlType:
    (precision,) = _facets(cursor, 1) or [53]
    if not 1 <= precision <= 53:
        message = f"Line {line}: Length or precision specification {precision} is invalid."
        raise SqlServerError(1001, message, severity=15, line=line)
    return TsqlType("real", precision=24) if precision <= 24 else TsqlType("float", precision=53)


def _fractional(cursor: Cursor, record: SystemType, line: int) -> TsqlType:
    (scale,) = _facets(cursor, 1) or [7]
    if not 0 <= scale <= 7:
        raise SqlServerError(1002, f"Line {line}: Specified scale {scale} is invalid.", severity=15, line=line)
    return TsqlType(record.name, scale=scale)


_READERS: Final[dict[Declared, Callable[[Cursor, SystemType, int], TsqlType]]] = {
    Declared.PLAIN: lambda _cursor, record, _line: plain_type(record.name),
    Declared.LENGTH: _sized,
    Declared.PRECISION_SCALE: _decimal,
    Declared.BITS: _float,
    Declared.SCALE: _fractional,
}
"""The reader of the facets, by kind of declaration."""
