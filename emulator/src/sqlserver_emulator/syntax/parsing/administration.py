"""Statements of administration: DBCC, ALTER DATABASE SCOPED CONFIGURATION, and those that are refused by their names.

DBCC CHECKIDENT becomes a call of the procedure that does it (``engine.identity_procedures``).
"""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.lexer import IDENTIFIERS, NSTRING, STRING, VARIABLE
from sqlserver_emulator.syntax.parsing.boundaries import expression_end, skip_parentheses
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.expressions import expression_of, literal_of
from sqlserver_emulator.syntax.statements import (
    Argument,
    Execute,
    Expression,
    Literal,
    Name,
    NoEffect,
    ShowOptions,
    Sql,
    Statement,
    Unsupported,
)
from sqlserver_emulator.types import BIT, TsqlType

DBCC_SCHEMA: Final = "dbcc"
_WITHOUT_EFFECT: Final = frozenset(
    ("LEGACY_CARDINALITY_ESTIMATION", "MAXDOP", "PARAMETER_SNIFFING", "QUERY_OPTIMIZER_HOTFIXES")
)
"""Scoped configurations that change plans, never results."""


def take_dbcc(cursor: Cursor) -> Statement:
    """DBCC CHECKIDENT or USEROPTIONS, or a refusal that names the command."""
    line = cursor.line
    cursor.expect("DBCC")
    command = cursor.take().word
    if command == "CHECKIDENT":
        return Execute(line, Name("checkident", DBCC_SCHEMA), _take_checkident(cursor))
    if command == "USEROPTIONS":
        return ShowOptions(line, is_quiet=_take_is_quiet(cursor))
    if cursor.word == "(":
        cursor.at = skip_parentheses(cursor.tokens, cursor.at)
    if cursor.accept("WITH"):
        cursor.at = expression_end(cursor.tokens, cursor.at)
    return Unsupported(line, f"DBCC {command}")


def _take_checkident(cursor: Cursor) -> tuple[Argument, ...]:
    cursor.expect("(")
    arguments = [_named("@table", _take_table(cursor))]
    if cursor.accept(","):
        mode = cursor.expect_one_of(("NORESEED", "RESEED"))
        arguments.append(_named("@mode", Literal(mode, TsqlType("varchar", 8))))
        if mode == "RESEED" and cursor.accept(","):
            arguments.append(Argument("@value", _take_number(cursor)))
    cursor.expect(")")
    if _take_is_quiet(cursor):
        arguments.append(_named("@is_quiet", Literal(True, BIT)))
    return tuple(arguments)


def _take_is_quiet(cursor: Cursor) -> bool:
    if not cursor.accept("WITH"):
        return False
    cursor.expect("NO_INFOMSGS")
    return True


def _take_table(cursor: Cursor) -> Literal:
    """A name in quotes, or as it is. Raises 2560 for anything else."""
    if cursor.token.kind in (STRING, NSTRING):
        literal = literal_of([cursor.take()])
        assert literal is not None  # noqa: S101 - a string is one
        return literal
    if cursor.token.kind not in IDENTIFIERS:
        raise SqlServerError(2560, "Parameter 1 is incorrect for this DBCC statement.", line=cursor.line)
    start = cursor.at
    cursor.take_identifier()
    while cursor.accept("."):
        if cursor.word != ".":
            cursor.take_identifier()
    return Literal(cursor.between(start, cursor.at), TsqlType("nvarchar", 776))


def _take_number(cursor: Cursor) -> Expression:
    start = cursor.at
    cursor.at += 2 if cursor.word in ("-", "+") else 1
    if cursor.tokens[start].kind == VARIABLE:
        cursor.check_variables(start, cursor.at)
        return expression_of(cursor, start, cursor.at)
    literal = literal_of(cursor.tokens[start : cursor.at])
    if literal is None:
        raise cursor.syntax_error(start)
    return Expression(cursor.between(start, cursor.at), literal=literal)


def _named(name: str, literal: Literal) -> Argument:
    return Argument(name, Expression("", literal=literal))


def take_scoped_configuration(cursor: Cursor) -> Statement:
    """ALTER DATABASE SCOPED CONFIGURATION: what changes plans only is taken, the rest refused."""
    line, start = cursor.line, cursor.at
    cursor.expect("ALTER", "DATABASE", "SCOPED", "CONFIGURATION")
    cursor.accept("FOR", "SECONDARY")
    verb = cursor.expect_one_of(("SET", "CLEAR"))
    option = cursor.take().word
    cursor.at = expression_end(cursor.tokens, cursor.at)
    if option in _WITHOUT_EFFECT or (verb, option) == ("CLEAR", "PROCEDURE_CACHE"):
        return NoEffect(line)
    if (verb, option) == ("SET", "PREVIEW_FEATURES"):
        # The catalog of the database has it.
        return Sql(line, cursor.between(start, cursor.at), "ALTER", tuple(cursor.tokens[start : cursor.at]))
    return Unsupported(line, f"ALTER DATABASE SCOPED CONFIGURATION {verb} {option}")


def take_unsupported(cursor: Cursor) -> Statement | None:
    """Take a statement that nothing else would know by its first words; None where it is none of these."""
    if cursor.word not in _FIRST_WORDS:
        return None
    line = cursor.line
    for words, end_of in _UNSUPPORTED:
        if cursor.accept(*words.split()):
            cursor.at = end_of(cursor)
            return Unsupported(line, words)
    return None


def _behind_expression(cursor: Cursor) -> int:
    return expression_end(cursor.tokens, cursor.at)


def _at_end(cursor: Cursor) -> int:
    at = cursor.at
    while cursor.tokens[at].word not in (";", ""):
        at += 1
    return at


_UNSUPPORTED: Final = (
    ("SEND ON CONVERSATION", _behind_expression),
    ("MOVE CONVERSATION", _behind_expression),
    ("GET CONVERSATION", _behind_expression),
    ("RECEIVE *", _behind_expression),
    ("RECEIVE TOP", _behind_expression),
    ("ADD SIGNATURE", _at_end),
    ("ADD COUNTER SIGNATURE", _at_end),
    ("CREATE AGGREGATE", _at_end),
)
"""First words -> where the statement ends."""
_FIRST_WORDS: Final = frozenset(words.partition(" ")[0] for words, _ in _UNSUPPORTED)
