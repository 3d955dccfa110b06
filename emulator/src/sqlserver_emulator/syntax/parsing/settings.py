"""DECLARE and SET: variables, and the session options, whose grammar decides where a SET ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.lexer import IDENTIFIERS, LITERALS, VARIABLE, identifier_value
from sqlserver_emulator.syntax.parsing import cursors
from sqlserver_emulator.syntax.parsing.assignment import ASSIGNMENTS, assigned
from sqlserver_emulator.syntax.parsing.boundaries import SqlScan, skip_parentheses
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.data_types import take_variable_type
from sqlserver_emulator.syntax.parsing.expressions import expression_of, take_expression
from sqlserver_emulator.syntax.parsing.keywords import word_set
from sqlserver_emulator.syntax.statements import (
    Block,
    Declaration,
    Declare,
    DeclareTable,
    Expression,
    Literal,
    SetIsolation,
    SetOption,
    SetVariable,
    Sql,
    Statement,
    Unsupported,
)
from sqlserver_emulator.types import TsqlType

_COMMA: Final = frozenset((",",))
SWITCHES: Final = word_set(
    """ANSI_DEFAULTS ANSI_NULL_DFLT_OFF ANSI_NULL_DFLT_ON ANSI_NULLS ANSI_PADDING ANSI_WARNINGS ARITHABORT ARITHIGNORE
    CONCAT_NULL_YIELDS_NULL CURSOR_CLOSE_ON_COMMIT FMTONLY FORCEPLAN IMPLICIT_TRANSACTIONS NOCOUNT NOEXEC
    NUMERIC_ROUNDABORT PARSEONLY QUOTED_IDENTIFIER REMOTE_PROC_TRANSACTIONS SHOWPLAN_ALL SHOWPLAN_TEXT SHOWPLAN_XML
    XACT_ABORT NO_BROWSETABLE RESULT_SET_CACHING"""
)
"""Options that are ON or OFF."""
VALUES: Final = word_set(
    """CONTEXT_INFO DATEFIRST DATEFORMAT DEADLOCK_PRIORITY FIPS_FLAGGER LANGUAGE LOCK_TIMEOUT QUERY_GOVERNOR_COST_LIMIT
    ROWCOUNT TEXTSIZE"""
)
"""Options that take a value."""
_LEVELS: Final = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SNAPSHOT", "SERIALIZABLE")


def take_declare(cursor: Cursor) -> Statement:
    line = cursor.line
    cursor.expect("DECLARE")
    if cursor.token.kind != VARIABLE:
        if not cursors.at_cursor_declaration(cursor):
            raise cursor.syntax_error()
        return cursors.take_declaration(cursor, line)
    statements: list[Statement] = []
    scalars: list[Declaration] = []
    while True:
        found = _take_declaration(cursor)
        if isinstance(found, Declaration):
            scalars.append(found)
        else:
            statements.append(found)
        if not cursor.accept(","):
            break
    if scalars:
        statements.insert(0, Declare(line, tuple(scalars)))
    return statements[0] if len(statements) == 1 else Block(line, tuple(statements))


def _take_declaration(cursor: Cursor) -> Declaration | Statement:
    line, token = cursor.line, cursor.take()
    if token.kind != VARIABLE:
        raise cursor.syntax_error(cursor.at - 1)
    name = token.text.lower()
    if name in cursor.known:
        message = (
            f"The variable name '{token.text}' has already been declared. "
            "Variable names must be unique within a query batch or stored procedure."
        )
        raise SqlServerError(134, message, severity=15, line=line)
    cursor.accept("AS")
    if cursor.accept("TABLE"):
        cursor.known.add(name)
        return take_table_declaration(cursor, line, token.text)
    if cursor.accept("CURSOR"):
        cursor.known.add(name)
        cursor.cursor_variables.add(name)
        return Declare(line, ())
    declared = take_variable_type(cursor)
    default = take_expression(cursor, _COMMA) if cursor.accept("=") else None
    declaration = Declaration(name, declared, default)
    cursor.known.add(name)
    cursor.declarations.append(declaration)
    return declaration


def take_table_declaration(cursor: Cursor, line: int, name: str) -> DeclareTable:
    start = cursor.at
    if cursor.word != "(":
        raise cursor.syntax_error()
    cursor.at = skip_parentheses(cursor.tokens, start)
    if cursor.tokens[cursor.at - 1].word != ")":
        raise cursor.syntax_error()
    return DeclareTable(line, name.lower(), f"CREATE TABLE {name} {cursor.between(start, cursor.at)}")


def take_set(cursor: Cursor) -> Statement:
    line, start = cursor.line, cursor.at
    cursor.expect("SET")
    if cursor.token.kind == VARIABLE:
        return _take_assignment(cursor, line)
    word = cursor.word
    if word in SWITCHES:
        return _take_switches(cursor, line)
    if word in VALUES:
        cursor.at += 1
        return SetOption(line, (word,), _take_option_value(cursor))
    if cursor.accept("TRANSACTION", "ISOLATION", "LEVEL"):
        return SetIsolation(line, _take_level(cursor))
    special = _SPECIAL.get(word)
    if special:
        return special(cursor, line, start)
    raise _unknown_option(cursor)


def _unknown_option(cursor: Cursor) -> SqlServerError:
    token = cursor.token
    if token.kind not in IDENTIFIERS:
        return cursor.syntax_error()
    message = f"'{identifier_value(token)}' is not a recognized SET option."
    return SqlServerError(195, message, severity=15, state=5, line=token.line)


def _take_assignment(cursor: Cursor, line: int) -> Statement:
    cursor.check_variables(cursor.at, cursor.at + 1)
    name = cursor.take().text
    if cursor.word == ".":
        scan_end = SqlScan(cursor.tokens, cursor.at).end()
        cursor.at = scan_end
        return Unsupported(line, "SET @variable.method(…)")
    operator = cursor.expect_one_of(ASSIGNMENTS)
    if cursor.word == "CURSOR":
        return cursors.take_assigned(cursor, line, name)
    if name.lower() in cursor.cursor_variables:
        return cursors.take_shared(cursor, line, name)
    start = cursor.at
    take_expression(cursor)
    return SetVariable(line, name.lower(), assigned(cursor, start - 2, operator, start, cursor.at))


def _take_switches(cursor: Cursor, line: int) -> SetOption:
    """`SET ANSI_NULLS, QUOTED_IDENTIFIER ON`."""
    options = [cursor.take().word]
    while cursor.accept(","):
        if cursor.word not in SWITCHES:
            raise _unknown_option(cursor)
        options.append(cursor.take().word)
    return SetOption(line, tuple(options), _switch(cursor))


def _switch(cursor: Cursor) -> Expression:
    value = cursor.expect_one_of(("ON", "OFF"))
    return Expression(value, literal=Literal(value, TsqlType("varchar", 3)))


def _take_option_value(cursor: Cursor) -> Expression:
    """A constant, a variable, or a bare word (us_english, mdy, LOW)."""
    start, token = cursor.at, cursor.token
    if token.word in ("-", "+"):
        cursor.at += 1
    elif token.kind in IDENTIFIERS:
        cursor.at += 1
        value = identifier_value(token)
        return Expression(token.text, literal=Literal(value, TsqlType("nvarchar", max(len(value), 1))))
    if cursor.token.kind not in LITERALS and cursor.token.kind != VARIABLE:
        raise cursor.syntax_error()
    cursor.at += 1
    return expression_of(cursor, start, cursor.at)


def _take_level(cursor: Cursor) -> str:
    for level in _LEVELS:
        if cursor.accept(*level.split()):
            return level
    raise cursor.syntax_error()


def _take_statistics(cursor: Cursor, line: int, start: int) -> Statement:
    cursor.expect("STATISTICS")
    options = [f"STATISTICS {cursor.expect_one_of(('IO', 'TIME', 'XML', 'PROFILE'))}"]
    while cursor.accept(","):
        options.append(f"STATISTICS {cursor.expect_one_of(('IO', 'TIME', 'XML', 'PROFILE'))}")
    return SetOption(line, tuple(options), _switch(cursor))


def _take_identity_insert(cursor: Cursor, line: int, start: int) -> Statement:
    """Goes to the engine as written."""
    while cursor.word not in ("ON", "OFF"):
        if cursor.word == ";":
            raise cursor.syntax_error()
        cursor.take()
    cursor.at += 1
    return Sql(line, cursor.between(start, cursor.at), "SET", tuple(cursor.tokens[start : cursor.at]))


def _take_offsets(cursor: Cursor, line: int, start: int) -> Statement:
    cursor.at = SqlScan(cursor.tokens, start).end()
    return Unsupported(line, "SET OFFSETS")


_SPECIAL: Final[dict[str, Callable[[Cursor, int, int], Statement]]] = {
    "IDENTITY_INSERT": _take_identity_insert,
    "OFFSETS": _take_offsets,
    "STATISTICS": _take_statistics,
}
