"""Expressions and conditions of control flow: their text, and the few shapes that need no engine.

A constant, a lone variable, and a comparison of integers are recognised here, because they are what drivers send in
every batch (`IF @@TRANCOUNT > 0`, `EXEC p 1, N'x'`). Everything else is text for ``EngineSession.evaluate``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax import lexer
from sqlserver_emulator.syntax.lexer import Token, string_value
from sqlserver_emulator.syntax.parsing.boundaries import expression_end
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.statements import Comparison, Condition, Expression, Literal
from sqlserver_emulator.types import BIGINT, INT, MAX_LENGTH, TsqlType

COMPARISONS: Final = frozenset(("=", "<>", "!=", "<", "<=", ">", ">=", "!<", "!>"))
CONDITION_STOPS: Final = frozenset(("THROW",))
"""THROW is no reserved word, but `IF @@ERROR <> 0 THROW` ends its condition there."""


def take_expression(cursor: Cursor, stops: frozenset[str] = frozenset()) -> Expression:
    """The expression at the cursor, up to a word of ``stops`` or the end of the statement."""
    start = cursor.at
    end = expression_end(cursor.tokens, start, stops)
    if end == start:
        raise cursor.syntax_error()
    cursor.at = end
    return expression_of(cursor, start, end)


def expression_of(cursor: Cursor, start: int, end: int) -> Expression:
    text = cursor.between(start, end)
    if "@" in text:
        cursor.check_variables(start, end)
    tokens = cursor.tokens[start:end]
    if len(tokens) == 1 and tokens[0].kind in (lexer.VARIABLE, lexer.GLOBAL):
        return Expression(text, variable=tokens[0].text.lower())
    return Expression(text, literal=literal_of(tokens) if len(tokens) <= 2 else None)


def take_condition(cursor: Cursor) -> Condition:
    start = cursor.at
    end = expression_end(cursor.tokens, start, CONDITION_STOPS)
    if end == start:
        raise cursor.syntax_error()
    cursor.at = end
    text = cursor.between(start, end)
    if "@" in text:
        cursor.check_variables(start, end)
    return Condition(text, _comparison_of(cursor.tokens[start:end]))


def _comparison_of(tokens: list[Token]) -> Comparison | None:
    if len(tokens) != 3 or tokens[1].word not in COMPARISONS:
        return None
    left, right = _operand(tokens[0]), _operand(tokens[2])
    return None if left is None or right is None else Comparison(left, tokens[1].word, right)


def _operand(token: Token) -> int | str | None:
    if token.kind == lexer.INTEGER:
        return int(token.text)
    return token.text.lower() if token.kind in (lexer.VARIABLE, lexer.GLOBAL) else None


def literal_of(tokens: list[Token]) -> Literal | None:
    """The constant that one token, or a sign and a number, stand for; None when they are something else."""
    if len(tokens) == 2 and tokens[0].word in ("-", "+"):
        value = literal_of(tokens[1:])
        if value is None or not isinstance(value.value, int | float | Decimal):
            return None
        return Literal(-value.value if tokens[0].word == "-" else value.value, value.type)
    if len(tokens) != 1:
        return None
    token = tokens[0]
    if token.word == "NULL":
        return Literal(None, INT)
    make = _LITERALS.get(token.kind)
    return make(token) if make else None


def _string(token: Token) -> Literal:
    value = string_value(token)
    name = "nvarchar" if token.kind == lexer.NSTRING else "varchar"
    limit = 4000 if name == "nvarchar" else 8000
    return Literal(value, TsqlType(name, max(len(value), 1) if len(value) <= limit else MAX_LENGTH))


def _integer(token: Token) -> Literal:
    value = int(token.text)
    if value < 2**31:
        return Literal(value, INT)
    return Literal(value, BIGINT) if value < 2**63 else _decimal(token)


def _decimal(token: Token) -> Literal:
    whole, _, fraction = token.text.partition(".")
    digits = len(whole.lstrip("0")) + len(fraction)
    if digits > 38:
        message = f"The number '{token.text}' is out of the range for numeric representation (maximum precision 38)."
        raise SqlServerError(1007, message, severity=15, line=token.line)
    return Literal(Decimal(token.text), TsqlType("decimal", precision=max(digits, 1), scale=len(fraction)))


def _float(token: Token) -> Literal:
    text = token.text if token.text[-1].isdigit() else token.text + "0"
    return Literal(float(text), TsqlType("float", precision=53))


def _hex(token: Token) -> Literal:
    digits = token.text[2:]
    value = bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
    return Literal(value, TsqlType("varbinary", max(len(value), 1) if len(value) <= 8000 else MAX_LENGTH))


def _money(token: Token) -> Literal:
    return Literal(Decimal(token.text[1:] or "0").quantize(Decimal("0.0001")), TsqlType("money"))


_LITERALS: Final = {
    lexer.STRING: _string,
    lexer.NSTRING: _string,
    lexer.INTEGER: _integer,
    lexer.DECIMAL: _decimal,
    lexer.FLOAT: _float,
    lexer.HEX: _hex,
    lexer.MONEY: _money,
}
