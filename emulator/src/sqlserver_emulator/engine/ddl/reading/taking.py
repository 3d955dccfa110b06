"""Reading the parts that DDL statements share: names, column lists, expressions as text, storage options."""

from __future__ import annotations

import re
from collections.abc import Callable, Container

from sqlserver_emulator.engine.ddl.reading.declarations import DataSpace, IndexColumn, ObjectName
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.syntax.lexer import (
    IDENTIFIERS,
    NSTRING,
    STRING,
    VARIABLE,
    Token,
    identifier_value,
    string_value,
)
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_REFUSED_OPTIONS = {
    "MEMORY_OPTIMIZED": "memory-optimized tables",
    "SYSTEM_VERSIONING": "SYSTEM_VERSIONING (temporal tables)",
    "IGNORE_DUP_KEY": "IGNORE_DUP_KEY = ON",
}


_OLD_INDEX_OPTIONS = frozenset(
    ("FILLFACTOR", "PAD_INDEX", "IGNORE_DUP_KEY", "DROP_EXISTING", "STATISTICS_NORECOMPUTE", "SORT_IN_TEMPDB")
)


def take_name(cursor: Cursor) -> ObjectName:
    """[database.][schema.]name, also `database..name`, `..name`, #name and @name."""
    if cursor.token.kind == VARIABLE:
        # Variable names are compared without regard to case, so they are kept in lower case.
        return ObjectName(cursor.take().text.lower())
    parts = ["" if cursor.word == "." else cursor.take_identifier()]
    while cursor.accept("."):
        # `db..t`: the empty part is the schema.
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
    """Take a comma-separated list of names."""
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
    """Take a parenthesised list of column names."""
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


_OPENING = ("(", "CASE")
_CLOSING = (")", "END")


def take_expression(cursor: Cursor, stop: Container[str]) -> str:
    """The text up to the next comma, closing parenthesis or word of ``stop`` on the same level."""
    start = cursor.at
    depth = 0
    while not cursor.at_end:
        word = cursor.word
        # A stop word at the very beginning is part of the expression (NULL, for instance).
        if depth == 0 and cursor.at > start and (word in (",", ")") or word in stop):
            break
        # Between CASE and END a stop word is part of a condition.
        depth += (word in _OPENING) - (word in _CLOSING)
        cursor.take()
    if cursor.at == start:
        raise cursor.syntax_error()
    return cursor.between(start, cursor.at)


def take_mask(cursor: Cursor) -> str:
    """The masking function of ``MASKED WITH (FUNCTION = '…')``, from the word MASKED on."""
    cursor.expect("MASKED", "WITH", "(", "FUNCTION", "=")
    token = cursor.take()
    if token.kind not in (STRING, NSTRING):
        raise cursor.syntax_error(cursor.at - 1)
    cursor.expect(")")
    return string_value(token)


def skip_storage_options(cursor: Cursor) -> list[DataSpace]:
    """WITH (FILLFACTOR = 80, …), ON [PRIMARY], TEXTIMAGE_ON [PRIMARY]: how data lies on disk is PostgreSQL's.

    Return the places that are named, which have to be there.
    """
    spaces: list[DataSpace] = []
    while True:
        if cursor.word == "WITH" and cursor.word_after() == "(":
            cursor.take()
            refuse_what_is_not_storage(take_parenthesised(cursor))
        elif cursor.word == "WITH" and cursor.word_after() in _OLD_INDEX_OPTIONS:
            cursor.take()
            _skip_old_options(cursor)
        # ON DELETE and ON UPDATE belong to a foreign key, not to storage.
        elif cursor.word in ("ON", "TEXTIMAGE_ON", "FILESTREAM_ON") and cursor.word_after() not in ("DELETE", "UPDATE"):
            cursor.take()
            name = cursor.take_identifier() if cursor.at_identifier() else _unquoted(cursor.take())
            spaces.append(DataSpace(name, cursor.word == "("))
            if cursor.word == "(":
                take_parenthesised(cursor)
        else:
            return spaces


def _unquoted(token: Token) -> str:
    """PRIMARY and DEFAULT may be written as words or as strings."""
    return string_value(token) if token.kind in (STRING, NSTRING) else token.text


def _skip_old_options(cursor: Cursor) -> None:
    """`FILLFACTOR = 80, PAD_INDEX`: options without parentheses, as they were written before SQL Server 2005."""
    while True:
        if cursor.take().word == "IGNORE_DUP_KEY":
            raise NotSupportedByEmulatorError(_REFUSED_OPTIONS["IGNORE_DUP_KEY"])
        if cursor.accept("="):
            cursor.take()
        if cursor.word != "," or cursor.word_after() not in _OLD_INDEX_OPTIONS:
            return
        cursor.take()


def refuse_what_is_not_storage(options: str) -> None:
    """Raise NotSupportedByEmulatorError for what makes another kind of table or index than one that lies elsewhere."""
    for option, what in _REFUSED_OPTIONS.items():
        if re.search(rf"\b{option}\s*=\s*ON\b", options, re.IGNORECASE):
            raise NotSupportedByEmulatorError(what)


def expect_end(cursor: Cursor) -> None:
    """Raise a syntax error unless the statement ends here."""
    cursor.accept(";")
    if not cursor.at_end:
        raise cursor.syntax_error()
