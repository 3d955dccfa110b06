"""SELECT @a = …, @b = …: SQL Server assigns from left to right, and row by row.

Without FROM it is a list of assignments, which the interpreter makes one after the other. With FROM the engine says the
last row's values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.syntax.lexer import VARIABLE
from sqlserver_emulator.syntax.parsing.boundaries import expression_end
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.expressions import expression_of
from sqlserver_emulator.syntax.statements import Assign, Expression, SetVariable

ASSIGNMENTS: Final = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="))
_ITEM_ENDS: Final = frozenset(
    (",", "FROM", "WHERE", "INTO", "UNION", "EXCEPT", "INTERSECT", "GROUP", "HAVING", "ORDER", "OPTION", "FOR")
)


def is_assignment(cursor: Cursor, start: int) -> bool:
    """Whether a SELECT begins at ``start`` whose first item assigns a variable (without DISTINCT or TOP)."""
    tokens = cursor.tokens
    return tokens[start + 1].kind == VARIABLE and tokens[start + 2].word in ASSIGNMENTS


def take_assignments(cursor: Cursor, start: int, end: int) -> Assign | None:
    """The statement as assignments; None when there is more to it than those."""
    items = list(_items(cursor, start + 1, end))
    if not items or items[-1][1] != end:
        return None
    return Assign(cursor.tokens[start].line, tuple(_assignment(cursor, *item) for item in items))


def _items(cursor: Cursor, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Start and end of each item of the select list that assigns; stops at the first that does not."""
    tokens = cursor.tokens
    while at < end and tokens[at].kind == VARIABLE and tokens[at + 1].word in ASSIGNMENTS:
        last = expression_end(tokens, at + 2, _ITEM_ENDS)
        if last == at + 2:
            raise cursor.syntax_error(last)
        yield at, last
        if tokens[last].word != ",":
            return
        at = last + 1


def _assignment(cursor: Cursor, start: int, end: int) -> SetVariable:
    name, operator = cursor.tokens[start], cursor.tokens[start + 1].word
    return SetVariable(name.line, name.text.lower(), assigned(cursor, start, operator, start + 2, end))


def assigned(cursor: Cursor, name_at: int, operator: str, start: int, end: int) -> Expression:
    """Return what `@x op expression` assigns: for `+=` and its like, with the variable's own value."""
    expression = expression_of(cursor, start, end)
    if operator == "=":
        return expression
    return Expression(f"{cursor.tokens[name_at].text} {operator[0]} ({expression.text})")
