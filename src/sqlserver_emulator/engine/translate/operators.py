"""Operators over translated values: arithmetic, `+` of strings, bits, comparisons, IN and LIKE.

Both sides are brought to the type of higher precedence first, as the server does; PostgreSQL's choice of an operator
never decides what a T-SQL expression means where the types are known.
"""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.clauses import select_from
from sqlserver_emulator.engine.translate.conversion import IMPLICIT, as_text, convert
from sqlserver_emulator.engine.translate.emission import Emission
from sqlserver_emulator.engine.translate.type_rules import (
    BINARY,
    DECIMAL,
    FLOAT,
    INTEGER,
    TEMPORAL,
    TEXT,
    VARBINARY_MAX,
    VARIANT,
    arithmetic,
    concatenated,
    family,
    higher,
    is_fixed_text,
)
from sqlserver_emulator.engine.translate.values import LiteralValue, Value, exact_type
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import BIGINT, INT, TsqlType

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
_NUMBERS = (INTEGER, DECIMAL, FLOAT)


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
    if kinds == {BINARY} and operator == "+":
        return Value(f"({left.sql} || {right.sql})", VARBINARY_MAX)
    if TEMPORAL in kinds:
        return _date_arithmetic(operator, left, right)
    return _arithmetic(operator, left, right)


def _typed_null(value: Value, other: Value) -> Value:
    if not value.is_null:
        return value
    return convert(value, INT if other.is_null or other.type is None else other.type)


def _unknown(operator: str, left: Value, right: Value) -> Value:
    """One type is not known: PostgreSQL decides (functions.sql defines + for text)."""
    known = left if left.kind is not None else right
    if operator == "+" and known.kind in (None, TEXT):
        return Value(f"({left.sql} OPERATOR(tsql.+) {right.sql})", None, kind=known.kind)
    return Value(f"({left.sql} {operator} {right.sql})", None)


def _concatenate(left: Value, right: Value) -> Value:
    def type() -> TsqlType | None:
        if left.type is None or right.type is None:
            return left.type or right.type
        if VARIANT in (family(left.type), family(right.type)):
            return TsqlType("nvarchar", 4000)
        return concatenated(left.type, right.type)

    return Value(f"({as_text(left)} || {as_text(right)})", type, kind=TEXT, nullable=left.nullable or right.nullable)


def _as_number(value: Value, other: Value) -> Value:
    if value.kind in _NUMBERS:
        return value
    to = other.type if other.kind in _NUMBERS else INT
    if to is not None and to.name == "bit":
        to = INT
    if to is not None and to.name == "numeric":
        to = TsqlType("decimal", precision=38, scale=max(to.scale, 6))
    return convert(value, to or INT, IMPLICIT)


def _arithmetic(operator: str, left: Value, right: Value) -> Value:
    if left.kind == right.kind == TEXT:
        raise SqlServerError(
            8117, f"Operand data type varchar is invalid for {_OPERATOR_NAMES.get(operator, operator)} operator."
        )
    left, right = _as_number(left, right), _as_number(right, left)
    sql = f"({left.sql} {operator} {right.sql})"
    nullable = left.nullable or right.nullable
    if left.kind == right.kind == INTEGER:
        return Value(sql, arithmetic_type(operator, left, right), nullable=nullable)
    if FLOAT in (left.kind, right.kind):
        sql = f"({_float(left)} {operator} {_float(right)})"
        return Value(sql, lambda: arithmetic_type(operator, left, right), kind=FLOAT, nullable=nullable)
    type = arithmetic_type(operator, left, right) if operator == "/" else None
    if type is not None:
        sql = f"trunc(round({left.sql}, {type.scale + 1}) / {right.sql}, {type.scale})"
    return Value(sql, lambda: arithmetic_type(operator, left, right), kind=DECIMAL, nullable=nullable)


_OPERATOR_NAMES = {"-": "subtract", "*": "multiply", "/": "divide", "%": "modulo"}


def _float(value: Value) -> str:
    return value.sql if value.kind == FLOAT else f"{value.sql}::float8"


def arithmetic_type(operator: str, left: Value, right: Value) -> TsqlType | None:
    """The result's type; an integer literal beside a decimal counts only the digits it has."""
    left_type, right_type = left.type, right.type
    if left_type is None or right_type is None:
        return None
    if left.kind == DECIMAL and right.kind == INTEGER:
        right_type = _literal_digits(right, right_type)
    if right.kind == DECIMAL and left.kind == INTEGER:
        left_type = _literal_digits(left, left_type)
    return arithmetic(operator, left_type, right_type)


def _literal_digits(value: Value, type: TsqlType) -> TsqlType:
    if isinstance(value, LiteralValue):
        return TsqlType("decimal", precision=len(value.literal.lexeme))
    return type


def _date_arithmetic(operator: str, left: Value, right: Value) -> Value:
    """datetime + number (days), datetime - datetime; the newer types have no arithmetic (error 206)."""
    for value in (left, right):
        if value.kind == TEMPORAL and value.type is not None and value.type.name not in ("datetime", "smalldatetime"):
            other = right if value is left else left
            raise SqlServerError(206, f"Operand type clash: {value.type.name} is incompatible with {_type_name(other)}")
    datetime = TsqlType("datetime")
    one, two = convert(left, datetime, IMPLICIT), convert(right, datetime, IMPLICIT)
    if operator not in "+-":
        raise SqlServerError(8117, f"Operand data type datetime is invalid for {_OPERATOR_NAMES[operator]} operator.")
    return Value(
        f"tsql.float_to_datetime(tsql.datetime_to_float({one.sql}) {operator} tsql.datetime_to_float({two.sql}))",
        datetime,
    )


def _type_name(value: Value) -> str:
    return value.type.name if value.type is not None else "sql_variant"


def _bits(operator: str, left: Value, right: Value) -> Value:
    left, right = (convert(v, BIGINT, IMPLICIT) if v.kind in (BINARY, TEXT) else v for v in (left, right))
    type = higher(left.type, right.type) if left.type is not None and right.type is not None else None
    return Value(f"({left.sql} {'#' if operator == '^' else operator} {right.sql})", type)


def compare(operator: str, left: Value, right: Value) -> str:
    """A comparison as a PostgreSQL boolean."""
    if left.is_null or right.is_null:
        return "NULL::boolean"
    left, right = comparable(left, right)
    return f"({left.sql} {comparison_operator(operator, left, right)} {right.sql})"


def comparison_operator(operator: str, left: Value, right: Value) -> str:
    """datetimeoffset is a composite type with operators of its own, which must be named to be found."""
    if left.kind == right.kind == TEMPORAL and exact_type(left).name == exact_type(right).name == "datetimeoffset":
        return f"OPERATOR(tsql.{operator})"
    return operator


def comparable(left: Value, right: Value) -> tuple[Value, Value]:
    """Both sides brought to a type that PostgreSQL compares as the server does."""
    if left.kind is None or right.kind is None:
        return left, right
    if left.kind == right.kind:
        return _same_family(left, right)
    if VARIANT in (left.kind, right.kind):
        left, right = (Value(v.sql, TsqlType("nvarchar", 4000)) if v.kind == VARIANT else v for v in (left, right))
        return comparable(left, right)
    if {left.kind, right.kind} <= set(_NUMBERS):
        return left, right
    left_type, right_type = exact_type(left), exact_type(right)
    if higher(left_type, right_type) is left_type:
        return left, convert(right, left_type, IMPLICIT)
    return convert(left, right_type, IMPLICIT), right


def _same_family(left: Value, right: Value) -> tuple[Value, Value]:
    if left.kind == TEXT:
        fixed = [not isinstance(v, LiteralValue) and is_fixed_text(v.type) for v in (left, right)]
        if any(fixed) and not all(fixed):
            left, right = (
                v if f else Value(f"{v.sql}::bpchar", v.type) for v, f in zip((left, right), fixed, strict=True)
            )
        return left, right
    if left.kind == BINARY:
        return _padded_binaries(left, right)
    if left.kind != TEMPORAL:
        return left, right
    left_type, right_type = exact_type(left), exact_type(right)
    if left_type.name == right_type.name or {"time", "datetimeoffset"}.isdisjoint((left_type.name, right_type.name)):
        return left, right
    if higher(left_type, right_type) is left_type:
        return left, convert(right, left_type, IMPLICIT)
    return convert(left, right_type, IMPLICIT), right


def _padded_binaries(left: Value, right: Value) -> tuple[Value, Value]:
    """Binaries are compared as if the shorter had zeros behind it: 0x00 equals an LSN of ten zeros.

    Beside a binary(n) the other side is filled to n, so that an index on the column is used.
    """
    lengths = [_fixed_length(value) for value in (left, right)]
    if lengths == [None, None]:
        return _without_zeros(left), _without_zeros(right)
    width = max(length or 0 for length in lengths)
    padded = [
        value if length == width else Value(f"tsql.pad_binary({value.sql}, {width})", VARBINARY_MAX)
        for value, length in zip((left, right), lengths, strict=True)
    ]
    return padded[0], padded[1]


def _fixed_length(value: Value) -> int | None:
    type = None if isinstance(value, LiteralValue) else value.type
    if type is None or type.name not in ("binary", "rowversion"):
        return None
    return 8 if type.name == "rowversion" else type.length


def _without_zeros(value: Value) -> Value:
    return Value(f"rtrim({value.sql}, '\\x00'::bytea)", VARBINARY_MAX)


def in_list(value: Value, items: list[Value]) -> str:
    if value.is_null:
        return "NULL::boolean"
    pairs = [comparable(value, item) for item in items if not item.is_null]
    operators = [comparison_operator("=", left, right) for left, right in pairs]
    tests = [f"({left.sql} {op} {right.sql})" for (left, right), op in zip(pairs, operators, strict=True)]
    if len(pairs) == len(items) and set(operators) == {"="} and len({left.sql for left, _ in pairs}) == 1:
        return f"({pairs[0][0].sql} IN ({', '.join(right.sql for _, right in pairs)}))"
    if len(pairs) < len(items):
        tests.append("NULL::boolean")
    return f"({' OR '.join(tests)})"


def compare_with_rows(operator: str, value: Value, word: str, query: str, type: TsqlType | None) -> str:
    """`value operator ANY|ALL (query)`, and IN (query); the query has one column of ``type``."""
    if type is None or value.kind is None:
        return f"({value.sql} {operator} {word} ({query}))"
    item = Value('"in"."value"', type)
    left, right = comparable(value, item)
    written = comparison_operator(operator, left, right)
    if right.sql == item.sql:
        return f"({left.sql} {written} {word} ({query}))"
    rows = select_from(right.sql, f'({query}) AS "in"("value")')
    return f"({left.sql} {written} {word} ({rows}))"


def like(emission: Emission, value: Value, pattern: Value, escape: str | None) -> str:
    """LIKE. PostgreSQL's LIKE has no [classes]: a pattern that may have them goes through a regular expression."""
    text, pattern_sql = as_text(value), as_text(pattern)
    if isinstance(pattern, LiteralValue) and not emission.facet(pattern, "pattern"):
        return f"({text} LIKE {pattern_sql} ESCAPE {escape if escape is not None else quote_empty()})"
    return f"tsql.like({text}, {pattern_sql}, {escape if escape is not None else 'NULL'})"


def quote_empty() -> str:
    return "''"
