"""sys.dm_exec_describe_first_result_set in a query: the function's call becomes a derived table of what it would give.

Only the interpreter can read a batch, so a statement that names the function is rewritten here, its arguments having
been evaluated: literals and variables. A batch that cannot be described gives one row that holds the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlserver_emulator.contract import EngineSession
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Column
from sqlserver_emulator.syntax.lexer import quote_identifier, quote_string
from sqlserver_emulator.syntax.parsing.boundaries import skip_parentheses
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.tsql.catalog.batch_analysis import analyze
from sqlserver_emulator.tsql.catalog.describing import RESULT_COLUMNS, first_result, result_row
from sqlserver_emulator.tsql.catalog.queries import Row
from sqlserver_emulator.types import INT, NVARCHAR_4000, TsqlType

NAME: Final = "dm_exec_describe_first_result_set"
_OF_ROWS: Final = [column for column in RESULT_COLUMNS if not column.name.startswith("tds_")]
_ERRORS: Final = [
    Column("error_number", INT),
    Column("error_severity", INT),
    Column("error_state", INT),
    Column("error_message", NVARCHAR_4000),
    Column("error_type", INT),
    Column("error_type_desc", TsqlType("nvarchar", 60)),
]
_KINDS: Final = {
    102: (2, "SYNTAX"),
    105: (2, "SYNTAX"),
    156: (2, "SYNTAX"),
    137: (8, "UNDECLARED_PARAMETER"),
    11513: (4, "DYNAMIC_SQL"),
    11526: (10, "TEMPORARY_TABLE"),
    208: (13, "OBJECT_DOES_NOT_EXIST"),
    2812: (13, "OBJECT_DOES_NOT_EXIST"),
}
_MISC: Final = (1, "MISC")
_MOST_ARGUMENTS: Final = 3

Evaluate = Callable[[str], object]


def is_about(error: SqlServerError) -> bool:
    """Return whether a statement failed because the engine has no such function."""
    return error.number == 208 and NAME in error.message.lower()


def rewritten(text: str, engine: EngineSession, evaluate: Evaluate) -> str:
    """Return the statement with derived tables in place of the function. ``evaluate``: an expression's value."""
    cursor = Cursor(text)
    pieces: list[str] = []
    done = 0
    for at, token in enumerate(cursor.tokens):
        if token.word.strip("[]").lower() != NAME or cursor.tokens[at + 1].word != "(":
            continue
        # The schema before the name belongs to the call.
        start = at - 2 if at > 1 and cursor.tokens[at - 1].word == "." else at
        end = skip_parentheses(cursor.tokens, at + 1)
        values = [_constant(argument, evaluate) for argument in _arguments(cursor, at + 2, end - 1)]
        pieces += [text[done : cursor.tokens[start].start], _derived(_rows(engine, *values))]
        done = cursor.tokens[end - 1].end
        cursor.at = end
        # A derived table needs a name; the function's call may be without.
        if not cursor.accept("AS") and not cursor.at_identifier():
            pieces.append(f" AS {NAME}")
    return "".join([*pieces, text[done:]])


def _arguments(cursor: Cursor, start: int, end: int) -> list[str]:
    """Return the texts between the commas. Raises 313 for too few, 8144 for too many."""
    found: list[str] = []
    first = at = start
    while at < end:
        word = cursor.tokens[at].word
        if word == "(":
            at = skip_parentheses(cursor.tokens, at)
            continue
        if word == ",":
            found.append(cursor.between(first, at))
            first = at + 1
        at += 1
    found.append(cursor.between(first, end))
    if len(found) != _MOST_ARGUMENTS:
        few = len(found) < _MOST_ARGUMENTS
        raise SqlServerError(
            313 if few else 8144,
            f"An insufficient number of arguments were supplied for the procedure or function sys.{NAME}."
            if few
            else f"Procedure or function sys.{NAME} has too many arguments specified.",
            state=3,
        )
    return found


def _constant(argument: str, evaluate: Evaluate) -> object:
    try:
        return evaluate(argument)
    except SqlServerError as error:
        # CROSS APPLY would pass a column: its value is different for each row, and here the text is needed at once.
        if error.number in (207, 4104):
            raise NotSupportedByEmulatorError(f"sys.{NAME} of a column") from None
        raise


def _rows(engine: EngineSession, text: object, parameters: object, browse: object) -> list[Row]:
    if browse:
        raise NotSupportedByEmulatorError(f"sys.{NAME} with browse information")
    try:
        columns = first_result(engine, analyze(text, parameters))
    except SqlServerError as error:
        if isinstance(error, NotSupportedByEmulatorError):
            raise
        shown = (error.number, error.severity, error.state, error.message, *_KINDS.get(error.number, _MISC))
        return [(*(None,) * len(_OF_ROWS), *shown)]
    no_error = (None,) * len(_ERRORS)
    at = {column.name: place for place, column in enumerate(RESULT_COLUMNS)}
    full = [result_row(ordinal, column) for ordinal, column in enumerate(columns, 1)]
    return [(*(row[at[column.name]] for column in _OF_ROWS), *no_error) for row in full]


def _derived(rows: list[Row]) -> str:
    # A derived table needs a SELECT, so no rows are one whose condition is false.
    selects = [_select(row) for row in rows] or [_select((None,) * len(_OF_ROWS + _ERRORS)) + " WHERE 1 = 0"]
    return f"({' UNION ALL '.join(selects)})"


def _select(row: Row) -> str:
    cells = zip(row, [*_OF_ROWS, *_ERRORS], strict=True)
    listed = (f"CAST({_literal(value)} AS {c.type}) AS {quote_identifier(c.name)}" for value, c in cells)
    return f"SELECT {', '.join(listed)}"


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(int(value))
    return quote_string(value) if isinstance(value, str) else str(value)
