"""Cursors: DECLARE … CURSOR, SET @c = CURSOR, OPEN, FETCH, CLOSE, DEALLOCATE."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.syntax.lexer import VARIABLE
from sqlserver_emulator.syntax.parsing.boundaries import SqlScan
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.expressions import expression_of
from sqlserver_emulator.syntax.parsing.keywords import word_set
from sqlserver_emulator.syntax.statements import (
    AssignCursor,
    CloseCursor,
    DeallocateCursor,
    DeclareCursor,
    Expression,
    FetchCursor,
    OpenCursor,
    Statement,
    Unsupported,
)

_OPTIONS: Final = word_set(
    """LOCAL GLOBAL FORWARD_ONLY SCROLL STATIC KEYSET DYNAMIC FAST_FORWARD READ_ONLY SCROLL_LOCKS OPTIMISTIC
    TYPE_WARNING INSENSITIVE"""
)
_SCROLLS: Final = frozenset(("SCROLL", "STATIC", "KEYSET", "DYNAMIC", "INSENSITIVE"))
_FORWARD: Final = frozenset(("FORWARD_ONLY", "FAST_FORWARD"))
_DIRECTIONS: Final = frozenset(("NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE"))
_COUNTED: Final = frozenset(("ABSOLUTE", "RELATIVE"))
_KEYS: Final = frozenset(("SYMMETRIC", "MASTER", "ALL"))


def at_cursor_declaration(cursor: Cursor) -> bool:
    """`name CURSOR`, `name INSENSITIVE SCROLL CURSOR`."""
    at = 1
    while cursor.word_after(at) in ("INSENSITIVE", "SCROLL"):
        at += 1
    return cursor.at_identifier() and cursor.word_after(at) == "CURSOR"


def take_declaration(cursor: Cursor, line: int) -> DeclareCursor:
    """From the name on."""
    name = cursor.take_identifier().lower()
    options = {cursor.take().word for _ in range(2) if cursor.word in ("INSENSITIVE", "SCROLL")}
    return _take_query(cursor, line, name, options)


def take_assigned(cursor: Cursor, line: int, variable: str) -> DeclareCursor:
    """`SET @c = CURSOR …`, from CURSOR on: the variable is the name of a local cursor, which it replaces."""
    return _take_query(cursor, line, variable.lower(), {"LOCAL"})


def take_shared(cursor: Cursor, line: int, variable: str) -> AssignCursor:
    """`SET @c = name`, from the name on: the variable refers to a cursor that has a name, or another variable."""
    return AssignCursor(line, variable.lower(), _take_cursor_name(cursor))


def _take_query(cursor: Cursor, line: int, name: str, options: set[str]) -> DeclareCursor:
    cursor.expect("CURSOR")
    while cursor.word in _OPTIONS:
        options.add(cursor.take().word)
    cursor.expect("FOR")
    start = cursor.at
    end = SqlScan(cursor.tokens, start).end()
    if end == start or cursor.tokens[start].word not in ("SELECT", "WITH", "("):
        raise cursor.syntax_error(start)
    cursor.at = end
    words = [token.word for token in cursor.tokens[start:end]]
    if words[-3:] == ["FOR", "READ", "ONLY"]:
        end -= 3
    elif words[-1] == "FOR" and cursor.accept("UPDATE"):
        end -= 1
        if cursor.accept("OF"):
            cursor.take_identifier()
            while cursor.accept(","):
                cursor.take_identifier()
    cursor.check_variables(start, end)
    scrolls = bool(options & _SCROLLS) and not options & _FORWARD
    return DeclareCursor(line, name, cursor.between(start, end), is_local="LOCAL" in options, scrolls=scrolls)


def take_open(cursor: Cursor) -> Statement:
    line = cursor.line
    cursor.expect("OPEN")
    return _key_statement(cursor, line, "OPEN") or OpenCursor(line, _take_cursor_name(cursor))


def take_close(cursor: Cursor) -> Statement:
    line = cursor.line
    cursor.expect("CLOSE")
    return _key_statement(cursor, line, "CLOSE") or CloseCursor(line, _take_cursor_name(cursor))


def take_deallocate(cursor: Cursor) -> Statement:
    line = cursor.line
    cursor.expect("DEALLOCATE")
    return DeallocateCursor(line, _take_cursor_name(cursor))


def _key_statement(cursor: Cursor, line: int, verb: str) -> Unsupported | None:
    """OPEN SYMMETRIC KEY and the like."""
    if cursor.word not in _KEYS or cursor.word_after() in ("", ";"):
        return None
    what = f"{verb} {cursor.word} {cursor.word_after()}"
    cursor.at = SqlScan(cursor.tokens, cursor.at).end()
    return Unsupported(line, what)


def take_fetch(cursor: Cursor) -> FetchCursor:
    line = cursor.line
    cursor.expect("FETCH")
    direction, count = "NEXT", None
    if cursor.word in _DIRECTIONS and cursor.word_after() not in ("INTO", "", ";"):
        direction = cursor.take().word
        if direction in _COUNTED:
            count = _take_count(cursor)
    cursor.accept("FROM")
    name = _take_cursor_name(cursor)
    into: list[str] = []
    if cursor.accept("INTO"):
        into.append(_take_variable(cursor))
        while cursor.accept(","):
            into.append(_take_variable(cursor))
    return FetchCursor(line, name, direction, count, tuple(into))


def _take_count(cursor: Cursor) -> Expression:
    start = cursor.at
    cursor.accept("-")
    cursor.take()
    return expression_of(cursor, start, cursor.at)


def _take_variable(cursor: Cursor) -> str:
    if cursor.token.kind != VARIABLE:
        raise cursor.syntax_error()
    cursor.check_variables(cursor.at, cursor.at + 1)
    return cursor.take().text.lower()


def _take_cursor_name(cursor: Cursor) -> str:
    """A cursor's name, or the variable that holds one. A global cursor is found by its name alone, too."""
    cursor.accept("GLOBAL")
    if cursor.token.kind == VARIABLE:
        return _take_variable(cursor)
    return cursor.take_identifier().lower()
