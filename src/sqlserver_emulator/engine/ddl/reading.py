"""Reading the parts that DDL statements share: names, column lists, expressions as text, storage options."""

from __future__ import annotations

from collections.abc import Callable, Container

from sqlserver_emulator.engine.ddl.declarations import IndexColumn, ObjectName
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.tsql.lexer import IDENTIFIERS, VARIABLE, identifier_value, tokenize
from sqlserver_emulator.tsql.parsing.cursor import Cursor


def take_name(cursor: Cursor) -> ObjectName:
    """[database.][schema.]name, also `database..name`, #name and @name."""
    if cursor.token.kind == VARIABLE:
        return ObjectName(cursor.take().text.lower())
    parts = [cursor.take_identifier()]
    while cursor.accept("."):
        if cursor.word == ".":
            parts.append("")
            continue
        if cursor.token.kind not in IDENTIFIERS:
            raise cursor.syntax_error()
        parts.append(identifier_value(cursor.take()))
    if len(parts) > 3:
        raise NotSupportedByEmulatorError(f"names with a server ({'.'.join(parts)})")
    parts = [""] * (3 - len(parts)) + parts
    return ObjectName(parts[2], parts[1], parts[0])


def take_names(cursor: Cursor) -> list[ObjectName]:
    names = [take_name(cursor)]
    while cursor.accept(","):
        names.append(take_name(cursor))
    return names


def take_list(cursor: Cursor, item: Callable[[Cursor], str]) -> tuple[str, ...]:
    """A parenthesised, comma-separated list."""
    cursor.expect("(")
    items = [item(cursor)]
    while cursor.accept(","):
        items.append(item(cursor))
    cursor.expect(")")
    return tuple(items)


def take_column_names(cursor: Cursor) -> tuple[str, ...]:
    return take_list(cursor, Cursor.take_identifier)


def take_index_columns(cursor: Cursor) -> tuple[IndexColumn, ...]:
    """`(a, b DESC)`."""
    cursor.expect("(")
    columns = []
    while True:
        name = cursor.take_identifier()
        descending = cursor.accept("DESC")
        if not descending:
            cursor.accept("ASC")
        columns.append(IndexColumn(name, descending))
        if cursor.accept(")"):
            return tuple(columns)
        cursor.expect(",")


def take_parenthesised(cursor: Cursor) -> str:
    """The text between a parenthesis and its partner, without them."""
    cursor.expect("(")
    start = cursor.at
    depth = 1
    while True:
        word = cursor.take().word
        depth += (word == "(") - (word == ")")
        if depth == 0:
            return cursor.between(start, cursor.at - 1)


def take_expression(cursor: Cursor, stop: Container[str]) -> str:
    """The text up to the next comma, closing parenthesis or word of ``stop`` on the same level."""
    start = cursor.at
    depth = 0
    while not cursor.at_end:
        word = cursor.word
        if depth == 0 and cursor.at > start and (word in (",", ")") or word in stop):
            break
        depth += (word == "(") - (word == ")")
        cursor.take()
    if cursor.at == start:
        raise cursor.syntax_error()
    return cursor.between(start, cursor.at)


def parenthesised(text: str) -> str:
    """An expression as the catalog shows it: in parentheses, once."""
    text = text.strip()
    depth = 0
    for token in tokenize(text):
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0 and token.end < len(text):
            return f"({text})"
    return text if text.startswith("(") else f"({text})"


def skip_storage_options(cursor: Cursor) -> None:
    """WITH (FILLFACTOR = 80, …), ON [PRIMARY], TEXTIMAGE_ON [PRIMARY]: how data lies on disk is PostgreSQL's."""
    while True:
        if cursor.word == "WITH" and cursor.word_after() == "(":
            cursor.take()
            take_parenthesised(cursor)
        elif cursor.accept("WITH", "FILLFACTOR", "="):
            cursor.take()
        elif cursor.word in ("ON", "TEXTIMAGE_ON", "FILESTREAM_ON") and cursor.word_after() not in ("DELETE", "UPDATE"):
            cursor.take()
            cursor.take_identifier() if cursor.at_identifier() else cursor.take()
            if cursor.word == "(":
                take_parenthesised(cursor)
        else:
            return


def expect_end(cursor: Cursor) -> None:
    cursor.accept(";")
    if not cursor.at_end:
        raise cursor.syntax_error()
