"""Operators over translated values: arithmetic, `+` of strings, bits. Comparisons are in `comparisons`.

Both sides are brought to the type of higher precedence first, as the server does; PostgreSQL's choice of an operator
never decides what a T-SQL expression means where the types are known.
"""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, as_text, convert
from sqlserver_emulator.engine.translate.values.type_rules import (
    BINARY,
    DECIMAL,
    FLOAT,
    INTEGER,
    NUMBERS,
    TEMPORAL,
    TEXT,
    VARBINARY_MAX,
    VARIANT,
    arithmetic,
    concatenated,
    counts_from_1900,
    family,
    higher,
    is_money,
    storage_type,
)
from sqlserver_emulator.engine.translate.values.value import LiteralValue, Value, suggest_general
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import INT, MAX_LENGTH, TsqlType

BINARY_OPERATORS = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}


def binary(operator: str, left: Value, right: Value) -> Value:
    """`left operator right`."""
    if left.is_null or right.is_null:
        left, right = _typed_null(left, right), _typed_null(right, left)
    if operator in "&|^":
        return _bits(operator, left, right)
    if left.kind is None or right.kind is None:
        return _unknown(operator, left, right)
    kinds = {left.kind, right.kind}
    if kinds <= {TEXT, VARIANT} and operator == "+":
        return _concatenate(left, right)
    # Two binaries are concatenated; with a number on one side `+` adds.
    if kinds == {BINARY} and operator == "+":
        return Value(f"({left.sql} || {right.sql})", lambda: _joined_binary(left, right), kind=BINARY)
    if TEMPORAL in kinds:
        return _date_arithmetic(operator, left, right)
    return _arithmetic(operator, left, right)


def _typed_null(value: Value, other: Value) -> Value:
    if not value.is_null:
        return value
    suggest_general(value, other)
    return convert(value, INT if other.is_null or other.type is None else other.type)


def _unknown(operator: str, left: Value, right: Value) -> Value:
    """One type is not known: PostgreSQL decides (functions.sql defines + for text)."""
    # A user-defined `+` of text and unknown: PostgreSQL has none that would concatenate.
    known = left if left.kind is not None else right
    if operator == "+" and known.kind in (None, TEXT):
        return Value(f"({left.sql} OPERATOR(tsql.+) {right.sql})", None, kind=known.kind)
    return Value(f"({left.sql} {operator} {right.sql})", None)


def _joined_binary(left: Value, right: Value) -> TsqlType:
    lengths = [value.type.length if value.type is not None else MAX_LENGTH for value in (left, right)]
    if MAX_LENGTH in lengths:
        return VARBINARY_MAX
    return TsqlType("varbinary", min(sum(lengths), _LONGEST_BYTES))


_LONGEST_BYTES = 8000
_LONGEST_NATIONAL = 4000


def _concatenate(left: Value, right: Value) -> Value:
    def type() -> TsqlType | None:
        if left.type is None or right.type is None:
            return left.type or right.type
        if VARIANT in (family(left.type), family(right.type)):
            return TsqlType("nvarchar", 4000)
        return concatenated(left.type, right.type)

    # Two halves of a surrogate pair that meet are one character.
    sql = f"tsql.joined({as_text(left)} || {as_text(right)})"
    # Literals are not asked for their type: their length would become part of the cache's key.
    known = [v.type for v in (left, right) if not isinstance(v, LiteralValue) and v.type is not None]
    if all(not t.is_max for t in known) and sum(t.length for t in known) > _LONGEST_NATIONAL:
        whole = type()
        if whole is not None and not whole.is_max:
            sql = f"tsql.left({sql}, {whole.length})"  # The server cuts such a sum, it does not make it a max.
    return Value(sql, type, kind=TEXT, nullable=left.nullable or right.nullable)


def _as_number(value: Value, other: Value) -> Value:
    """A string next to a number becomes a number of that very type, precision and scale included."""
    if value.kind in NUMBERS:
        return value
    to = other.type if other.kind in NUMBERS else INT
    if value.kind not in (TEXT, VARIANT, BINARY):
        raise SqlServerError(206, f"Operand type clash: {_type_name(value)} is incompatible with {_type_name(other)}")
    return convert(value, to or INT, IMPLICIT)


def _arithmetic(operator: str, left: Value, right: Value) -> Value:
    if left.kind == right.kind == TEXT:
        raise _invalid_operand("varchar", operator)
    left, right = _as_number(left, right), _as_number(right, left)
    nullable = left.nullable or right.nullable
    if left.kind == right.kind == INTEGER:
        return _integer_arithmetic(operator, left, right)
    if FLOAT in (left.kind, right.kind):
        if operator == "%":
            # SQL Server has no modulo of float.
            raise _incompatible(operator, left, right)
        sql = f"({_float(left)} {operator} {_float(right)})"
        return Value(sql, lambda: arithmetic_type(operator, left, right), kind=FLOAT, nullable=nullable)
    type = arithmetic_type(operator, left, right)
    sql = f"({left.sql} {operator} {right.sql})"
    if type is None:
        return Value(sql, None, kind=DECIMAL, nullable=nullable)
    scale = _MONEY_SCALE if is_money(type) else type.scale
    if operator == "/":
        # The rounding gives PostgreSQL's quotient enough digits, and takes none. The server cuts the rest.
        digits = max(scale + 1, left.type.scale if left.type is not None else 0)
        sql = f"trunc(round({left.sql}, {digits}) / {right.sql}, {scale})"
    if is_money(type) or (type.precision == _MOST_DIGITS and operator != "%"):
        # Digits that the type has no place for are lost here and not at the end, and too great a number is an error.
        sql = f"{sql}::{storage_type(type)}"
    return Value(sql, type, nullable=nullable)


def _integer_arithmetic(operator: str, left: Value, right: Value) -> Value:
    type = arithmetic_type(operator, left, right)
    # SQL Server does not add bits.
    if type is not None and type.name == "bit":
        raise _invalid_operand("bit", operator)
    sql = f"({left.sql} {operator} {right.sql})"
    if type is not None and type.name == "tinyint":
        # tinyint is stored as smallint, so PostgreSQL would not notice a sum over 255.
        sql = f"tsql.tinyint_result({sql})"
    return Value(sql, type, nullable=left.nullable or right.nullable)


_MONEY_SCALE = 4
_MOST_DIGITS = 38
_OPERATOR_NAMES = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo"}
_WORDED = {"%": "modulo operator", "&": "'&' operator", "|": "'|' operator", "^": "'^' operator"}


def _invalid_operand(type_name: str, operator: str) -> SqlServerError:
    return SqlServerError(8117, f"Operand data type {type_name} is invalid for {_OPERATOR_NAMES[operator]} operator.")


def _incompatible(operator: str, left: Value, right: Value) -> SqlServerError:
    names = f"{_type_name(left)} and {_type_name(right)}"
    return SqlServerError(402, f"The data types {names} are incompatible in the {_WORDED[operator]}.")


def negative(value: Value) -> Value:
    """`-value`. There is no negative tinyint: the result is a smallint."""
    if value.kind == TEXT:
        raise SqlServerError(8117, "Operand data type varchar is invalid for minus operator.")
    if value.kind == BINARY:
        raise SqlServerError(8117, f"Operand data type {_type_name(value)} is invalid for minus operator.")
    type = value.type if value.kind == INTEGER else None
    if type is not None and type.name == "tinyint":
        return Value(f"(- {value.sql})", TsqlType("smallint"), nullable=value.nullable)
    return Value(f"(- {value.sql})", lambda: value.type, kind=value.kind, nullable=value.nullable)


def bitwise_not(value: Value) -> Value:
    """Return `~value`. Raises 8117."""
    if value.kind == BINARY or value.kind in (DECIMAL, FLOAT):
        raise SqlServerError(8117, f"Operand data type {_type_name(value)} is invalid for '~' operator.")
    name = value.type.name if value.type is not None else ""
    if name == "bit":
        # A bit has one digit, so its complement is 0 or 1.
        return Value(f"(1 - {value.sql})::int2", value.type)
    if name == "tinyint":
        # tinyint has no sign: the complement stays in one byte.
        return Value(f"(255 - {value.sql})::int2", value.type)
    return Value(f"(~ {value.sql})", value.type, kind=value.kind)


def _float(value: Value) -> str:
    return value.sql if value.kind == FLOAT else f"{value.sql}::float8"


def arithmetic_type(operator: str, left: Value, right: Value) -> TsqlType | None:
    """The result's type; an integer literal next to a decimal counts only the digits it has."""
    left_type, right_type = left.type, right.type
    if left_type is None or right_type is None:
        return None
    # money keeps its own rules; its scale never comes from the other side.
    if left.kind == DECIMAL and right.kind == INTEGER and not is_money(left_type):
        right_type = _literal_digits(right, right_type)
    if right.kind == DECIMAL and left.kind == INTEGER and not is_money(right_type):
        left_type = _literal_digits(left, left_type)
    return arithmetic(operator, left_type, right_type)


def _literal_digits(value: Value, type: TsqlType) -> TsqlType:
    if isinstance(value, LiteralValue):
        return TsqlType("decimal", precision=len(value.literal.lexeme))
    return type


def _date_arithmetic(operator: str, left: Value, right: Value) -> Value:
    """datetime + number (days), datetime - datetime; the newer types have no arithmetic (error 206)."""
    for value in (left, right):
        if value.kind == TEMPORAL and value.type is not None and not counts_from_1900(value.type):
            other = right if value is left else left
            raise SqlServerError(206, f"Operand type clash: {value.type.name} is incompatible with {_type_name(other)}")
    datetime = TsqlType("datetime")
    one, two = convert(left, datetime, IMPLICIT), convert(right, datetime, IMPLICIT)
    if operator not in "+-":
        raise _invalid_operand("datetime", operator)
    return Value(
        f"tsql.float_to_datetime(tsql.datetime_to_float({one.sql}) {operator} tsql.datetime_to_float({two.sql}))",
        datetime,
    )


def _type_name(value: Value) -> str:
    return value.type.name if value.type is not None else "sql_variant"


def _bits(operator: str, left: Value, right: Value) -> Value:
    kinds = {left.kind, right.kind}
    if kinds == {BINARY} or not kinds <= {INTEGER, BINARY, TEXT, None}:
        raise _incompatible(operator, left, right)
    if INTEGER in kinds:
        type = left.type if left.kind == INTEGER else right.type
        left, right = (convert(v, type or INT, IMPLICIT) if v.kind in (BINARY, TEXT) else v for v in (left, right))
    # PostgreSQL's exclusive or is `#`; `^` is a power there.
    result = higher(left.type, right.type) if left.type is not None and right.type is not None else None
    return Value(f"({left.sql} {'#' if operator == '^' else operator} {right.sql})", result)
