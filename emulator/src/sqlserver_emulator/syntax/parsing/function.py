"""CREATE FUNCTION: scalar, inline table-valued, and table-valued with statements."""

from __future__ import annotations

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.lexer import VARIABLE
from sqlserver_emulator.syntax.parsing.boundaries import skip_parentheses
from sqlserver_emulator.syntax.parsing.cursor import Cursor, TakeBatch
from sqlserver_emulator.syntax.parsing.data_types import take_parameter_type
from sqlserver_emulator.syntax.parsing.execute import take_name
from sqlserver_emulator.syntax.parsing.procedure import take_parameters
from sqlserver_emulator.syntax.parsing.settings import take_table_declaration
from sqlserver_emulator.syntax.statements import (
    Batch,
    Block,
    Execute,
    ExecuteText,
    Function,
    If,
    InsertExecute,
    ParameterDeclaration,
    Print,
    RaiseError,
    Return,
    Statement,
    Throw,
    TryCatch,
    While,
)
from sqlserver_emulator.types import TsqlType


def take_function(cursor: Cursor, take_batch: TakeBatch) -> Function:
    """Take CREATE or ALTER FUNCTION; ``take_batch`` takes the body.

    Raises the errors of the body, and 443, 444, 455 or 557 for what a function must not do.
    """
    if cursor.expect_one_of(("CREATE", "ALTER")) == "CREATE":
        cursor.accept("OR", "ALTER")
    cursor.expect("FUNCTION")
    take_name(cursor)
    cursor.expect("(")
    parameters = () if cursor.word == ")" else take_parameters(cursor)
    cursor.expect(")")
    cursor.known.update(parameter.name for parameter in parameters)
    cursor.expect("RETURNS")
    if cursor.accept("TABLE"):
        return _take_inline(cursor, parameters)
    if cursor.token.kind == VARIABLE:
        line, name = cursor.line, cursor.take().text
        cursor.expect("TABLE")
        table = take_table_declaration(cursor, line, name)
        cursor.known.add(table.name)
        strict, bound = _take_options(cursor)
        body = _take_body(cursor, take_batch)
        return Function(parameters, table=table, body=body, is_strict=strict, is_schema_bound=bound)
    returns = take_parameter_type(cursor)
    return _take_scalar(cursor, parameters, returns, take_batch)


def _take_scalar(
    cursor: Cursor, parameters: tuple[ParameterDeclaration, ...], returns: TsqlType, take_batch: TakeBatch
) -> Function:
    strict, bound = _take_options(cursor)
    line = cursor.line
    body = _take_body(cursor, take_batch)
    last: Statement | None = body.statements[-1] if body.statements else None
    while isinstance(last, Block):
        last = last.statements[-1]
    if not isinstance(last, Return):
        message = "The last statement included within a function must be a return statement."
        raise SqlServerError(455, message, state=2, line=line)
    return Function(parameters, returns, body=body, is_strict=strict, is_schema_bound=bound)


def _take_inline(cursor: Cursor, parameters: tuple[ParameterDeclaration, ...]) -> Function:
    _, bound = _take_options(cursor)
    cursor.accept("AS")
    cursor.expect("RETURN")
    start = cursor.at
    end = len(cursor.tokens) - 1
    while end > start and cursor.tokens[end - 1].word == ";":
        end -= 1
    if cursor.word == "(" and skip_parentheses(cursor.tokens, start) == end:
        start, end = start + 1, end - 1
    if end <= start:
        raise cursor.syntax_error()
    cursor.check_variables(start, end)
    query = cursor.between(start, end)
    cursor.at = len(cursor.tokens) - 1
    return Function(parameters, query=query, is_schema_bound=bound)


def _take_options(cursor: Cursor) -> tuple[bool, bool]:
    """Whether NULL arguments give NULL, and whether the function is bound to the schema."""
    strict = bound = False
    if not cursor.accept("WITH"):
        return strict, bound
    while True:
        if cursor.accept("SCHEMABINDING"):
            bound = True
        elif cursor.accept("RETURNS", "NULL", "ON", "NULL", "INPUT"):
            strict = True
        elif cursor.accept("CALLED", "ON", "NULL", "INPUT") or cursor.accept("EXECUTE", "AS", "CALLER"):
            pass
        elif cursor.accept("INLINE", "="):
            cursor.expect_one_of(("ON", "OFF"))
        else:
            raise NotSupportedByEmulatorError(f"functions WITH {cursor.word} {cursor.word_after()}".rstrip())
        if not cursor.accept(","):
            return strict, bound


def _take_body(cursor: Cursor, take_batch: TakeBatch) -> Batch:
    cursor.accept("AS")
    if cursor.word != "BEGIN":
        raise cursor.syntax_error()
    body = take_batch(cursor)
    for statement in body.statements:
        _refuse_effects(statement)
    return body


def _refuse_effects(statement: Statement) -> None:
    """Raise for a statement with an effect outside the function: an error of the function's own text."""
    match statement:
        case Block(statements=inner):
            parts = list(inner)
        case If(then=then, otherwise=otherwise):
            parts = [then] if otherwise is None else [then, otherwise]
        case While(body=body):
            parts = [body]
        case TryCatch():
            raise _side_effect("BEGIN TRY", statement.line)
        case Execute() | ExecuteText() | InsertExecute():
            message = "Only functions and some extended stored procedures can be executed from within a function."
            raise SqlServerError(557, message, line=statement.line)
        case Print() | RaiseError() | Throw():
            raise _side_effect(type(statement).__name__.upper(), statement.line)
        case _:
            parts = []
    for part in parts:
        _refuse_effects(part)


def _side_effect(what: str, line: int) -> SqlServerError:
    message = f"Invalid use of a side-effecting operator '{what}' within a function."
    return SqlServerError(443, message, state=14, line=line)
