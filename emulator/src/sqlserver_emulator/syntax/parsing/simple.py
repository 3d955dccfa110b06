"""Statements without statements inside: PRINT, RAISERROR, THROW, RETURN, USE, WAITFOR, and those of transactions."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.lexer import VARIABLE
from sqlserver_emulator.syntax.parsing.boundaries import expression_end, skip_parentheses
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.expressions import take_expression
from sqlserver_emulator.syntax.statements import (
    BeginTransaction,
    Break,
    CommitTransaction,
    Continue,
    Print,
    RaiseError,
    Return,
    RollbackTransaction,
    SaveTransaction,
    Statement,
    Throw,
    Unsupported,
    Use,
    WaitFor,
)

_COMMA: Final = frozenset((",",))


def take_print(cursor: Cursor) -> Print:
    line = cursor.line
    cursor.expect("PRINT")
    return Print(line, take_expression(cursor))


def take_raiserror(cursor: Cursor) -> RaiseError:
    line = cursor.line
    cursor.expect("RAISERROR", "(")
    message = take_expression(cursor, _COMMA)
    cursor.expect(",")
    severity = take_expression(cursor, _COMMA)
    cursor.expect(",")
    state = take_expression(cursor, _COMMA)
    arguments = []
    while cursor.accept(","):
        arguments.append(take_expression(cursor, _COMMA))
    cursor.expect(")")
    options = []
    if cursor.accept("WITH"):
        options.append(cursor.expect_one_of(("LOG", "NOWAIT", "SETERROR")))
        while cursor.accept(","):
            options.append(cursor.expect_one_of(("LOG", "NOWAIT", "SETERROR")))
    return RaiseError(line, message, severity, state, tuple(arguments), tuple(options))


def take_throw(cursor: Cursor) -> Throw:
    line = cursor.line
    cursor.expect("THROW")
    if expression_end(cursor.tokens, cursor.at) == cursor.at:
        if not cursor.catches:
            message = (
                "To rethrow an error, a THROW statement must be used inside a CATCH block. Insert the THROW statement "
                "inside a CATCH block, or add error parameters to the THROW statement."
            )
            raise SqlServerError(10704, message, severity=15, line=line)
        return Throw(line)
    number = take_expression(cursor, _COMMA)
    cursor.expect(",")
    message_expression = take_expression(cursor, _COMMA)
    cursor.expect(",")
    return Throw(line, number, message_expression, take_expression(cursor, _COMMA))


def take_return(cursor: Cursor) -> Return:
    line = cursor.line
    cursor.expect("RETURN")
    if expression_end(cursor.tokens, cursor.at) == cursor.at:
        return Return(line)
    return Return(line, take_expression(cursor))


def take_use(cursor: Cursor) -> Use:
    line = cursor.line
    cursor.expect("USE")
    return Use(line, cursor.take_identifier())


def take_loop_exit(cursor: Cursor) -> Statement:
    line, word = cursor.line, cursor.take().word
    if not cursor.loops:
        number = 135 if word == "BREAK" else 136
        message = f"Cannot use a {word} statement outside the scope of a WHILE statement."
        raise SqlServerError(number, message, severity=15, line=line)
    return Break(line) if word == "BREAK" else Continue(line)


def take_waitfor(cursor: Cursor) -> Statement:
    line = cursor.line
    cursor.expect("WAITFOR")
    if cursor.word == "(":
        cursor.at = skip_parentheses(cursor.tokens, cursor.at)
        if cursor.accept(",", "TIMEOUT"):
            take_expression(cursor)
        return Unsupported(line, "WAITFOR (…)")
    word = cursor.expect_one_of(("DELAY", "TIME"))
    return WaitFor(line, take_expression(cursor), until=word == "TIME")


def take_goto(cursor: Cursor) -> Unsupported:
    line = cursor.line
    cursor.expect("GOTO")
    cursor.take_identifier()
    return Unsupported(line, "GOTO")


def take_begin_transaction(cursor: Cursor) -> BeginTransaction:
    line = cursor.line
    cursor.expect("BEGIN")
    cursor.expect_one_of(("TRAN", "TRANSACTION"))
    name = _transaction_name(cursor)
    if cursor.accept("WITH", "MARK") and cursor.token.kind in ("string", "nstring", VARIABLE):
        cursor.at += 1
    return BeginTransaction(line, name)


def take_commit(cursor: Cursor) -> CommitTransaction:
    line = cursor.line
    cursor.expect("COMMIT")
    name = _ending(cursor)
    if cursor.accept("WITH", "("):
        cursor.expect("DELAYED_DURABILITY", "=")
        cursor.expect_one_of(("ON", "OFF"))
        cursor.expect(")")
    return CommitTransaction(line, name)


def take_rollback(cursor: Cursor) -> RollbackTransaction:
    line = cursor.line
    cursor.expect("ROLLBACK")
    return RollbackTransaction(line, _ending(cursor))


def take_save(cursor: Cursor) -> SaveTransaction:
    line = cursor.line
    cursor.expect("SAVE")
    cursor.expect_one_of(("TRAN", "TRANSACTION"))
    name = _transaction_name(cursor)
    if not name:
        raise cursor.syntax_error()
    return SaveTransaction(line, name)


def _ending(cursor: Cursor) -> str:
    if cursor.accept("TRAN") or cursor.accept("TRANSACTION"):
        return _transaction_name(cursor)
    cursor.accept("WORK")
    return ""


def _transaction_name(cursor: Cursor) -> str:
    """An identifier, a variable (which keeps its @), or '' when none comes."""
    if cursor.token.kind == VARIABLE:
        cursor.check_variables(cursor.at, cursor.at + 1)
        return cursor.take().text.lower()
    return cursor.take_identifier() if cursor.at_identifier() else ""
