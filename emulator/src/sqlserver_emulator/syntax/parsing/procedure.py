"""Parameter lists and CREATE PROCEDURE."""

from __future__ import annotations

from functools import lru_cache

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.lexer import GLOBAL, VARIABLE
from sqlserver_emulator.syntax.parsing.cursor import Cursor, TakeBatch
from sqlserver_emulator.syntax.parsing.data_types import take_parameter_type
from sqlserver_emulator.syntax.parsing.execute import check_parameter_count, take_name
from sqlserver_emulator.syntax.parsing.expressions import literal_of
from sqlserver_emulator.syntax.statements import Literal, ParameterDeclaration, Procedure, SystemVariable
from sqlserver_emulator.types import MAX_LENGTH, TsqlType


@lru_cache(2048)
def parse_parameters(text: str) -> tuple[ParameterDeclaration, ...]:
    """`@a int, @b nvarchar(20) = N'x' OUTPUT`, as sp_executesql gets it; empty text, no parameters."""
    cursor = Cursor(text)
    parameters = () if cursor.at_end else take_parameters(cursor)
    if not cursor.at_end:
        raise cursor.syntax_error()
    return parameters


def take_procedure(cursor: Cursor, take_batch: TakeBatch) -> Procedure:
    """Take CREATE or ALTER PROCEDURE; ``take_batch`` takes the body."""
    if cursor.expect_one_of(("CREATE", "ALTER")) == "CREATE":
        cursor.accept("OR", "ALTER")
    cursor.expect_one_of(("PROCEDURE", "PROC"))
    take_name(cursor)
    parameters = _take_optional_parameters(cursor)
    if cursor.accept("WITH"):
        _skip_options(cursor)
    if cursor.accept("FOR"):
        cursor.expect("REPLICATION")
    cursor.expect("AS")
    cursor.known.update(parameter.name for parameter in parameters)
    # A body may be empty: scripts make such a procedure first and alter it afterwards.
    return Procedure(parameters, take_batch(cursor))


def _take_optional_parameters(cursor: Cursor) -> tuple[ParameterDeclaration, ...]:
    if cursor.token.kind == VARIABLE:
        return take_parameters(cursor)
    if not cursor.accept("("):
        return ()
    parameters = () if cursor.word == ")" else take_parameters(cursor)
    cursor.expect(")")
    return parameters


def _skip_options(cursor: Cursor) -> None:
    """WITH RECOMPILE, ENCRYPTION, EXECUTE AS OWNER, SCHEMABINDING: nothing that changes what the body does here."""
    if cursor.word == "NATIVE_COMPILATION":
        raise NotSupportedByEmulatorError("natively compiled procedures")
    while cursor.word != "AS" or cursor.word_after(-1) in ("EXECUTE", "EXEC"):
        cursor.take()


def take_parameters(cursor: Cursor) -> tuple[ParameterDeclaration, ...]:
    parameters = [_take_parameter(cursor)]
    while cursor.accept(","):
        parameters.append(_take_parameter(cursor))
    check_parameter_count(len(parameters), "CREATE/ALTER PROCEDURE", cursor.line)
    return tuple(parameters)


def _take_parameter(cursor: Cursor) -> ParameterDeclaration:
    line, token = cursor.line, cursor.take()
    if token.kind != VARIABLE:
        raise cursor.syntax_error(cursor.at - 1)
    cursor.accept("AS")
    declared = take_parameter_type(cursor)
    if cursor.accept("VARYING"):
        raise SqlServerError(102, "Incorrect syntax near 'VARYING'.", severity=15, line=line)
    cursor.accept("NOT", "NULL")
    cursor.accept("NULL")
    default = _take_default(cursor) if cursor.accept("=") else None
    output = cursor.accept("OUTPUT") or cursor.accept("OUT")
    cursor.accept("READONLY")
    return ParameterDeclaration(token.text.lower(), declared, default, output, token.text)


def _take_default(cursor: Cursor) -> Literal:
    if cursor.token.kind == GLOBAL:
        name = cursor.take().text.lower()
        return Literal(SystemVariable(name), TsqlType("nvarchar", MAX_LENGTH))
    start = cursor.at
    cursor.at += 2 if cursor.word in ("-", "+") else 1
    literal = literal_of(cursor.tokens[start : cursor.at])
    if literal is not None:
        return literal
    cursor.at = start
    value = cursor.take_identifier()
    return Literal(value, TsqlType("nvarchar", max(len(value), 1)))
