"""WITH CHANGE_TRACKING_CONTEXT (…): what marks the changes of one INSERT, UPDATE, DELETE or MERGE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translation import LiteralParameter, ParameterSource, Translated, VariableParameter
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.syntax.lexer import HEX, VARIABLE
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.types import TsqlType

_MOST_BYTES: Final = 128
_CHANGES: Final = (Command.INSERT, Command.UPDATE, Command.DELETE, Command.MERGE)


def with_context(text: str, emission: Emission, translate: Callable[[str, Emission], Translated]) -> Translated:
    """Translate the statement without the clause. Raises 22108 for a SELECT, 22109 for what is no short binary."""
    cursor = Cursor(text)
    while cursor.word == ";":
        cursor.take()
    cursor.expect("WITH", "CHANGE_TRACKING_CONTEXT", "(")
    context = _take_context(cursor, emission)
    cursor.expect(")")
    at = cursor.token.end if cursor.word == "," else cursor.token.start
    # Blanks in its place: literals are found by where they stand in the text.
    blanks = " " * at
    if cursor.word == ",":
        blanks = " " * (at - 4) + "WITH"
    translated = translate(blanks + text[at:], emission)
    if translated.command not in _CHANGES:
        message = "The CHANGE_TRACKING_CONTEXT WITH clause cannot be used with a SELECT statement."
        raise SqlServerError(22108, message)
    return replace(translated, tracking_context=context)


def _take_context(cursor: Cursor, emission: Emission) -> ParameterSource:
    token = cursor.token
    if token.kind == HEX:
        digits = cursor.take().text[2:]
        # An odd number of digits has a zero in front.
        value = bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0"))
        _check(TsqlType("varbinary", len(value)))
        return LiteralParameter(value)
    if token.kind != VARIABLE:
        raise cursor.syntax_error()
    name = cursor.take().text.lower()
    type = emission.variable_types.get(name)
    emission.variables.add(name)
    if type is None:
        raise SqlServerError(137, f'Must declare the scalar variable "{name}".', severity=15)
    _check(type)
    return VariableParameter(name)


def _check(type: TsqlType) -> None:
    if type.name not in ("binary", "varbinary") or not 0 <= type.length <= _MOST_BYTES:
        raise SqlServerError(
            22109,
            'The "context" argument for the CHANGE_TRACKING_CONTEXT WITH clause must be of type varbinary data type'
            " with a maximum length of 128.",
        )
