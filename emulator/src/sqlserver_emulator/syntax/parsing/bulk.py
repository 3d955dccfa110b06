"""INSERT BULK: the statement by which drivers announce rows that follow in a message of their own."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.syntax.lexer import INTEGER, identifier_value
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.data_types import take_type
from sqlserver_emulator.syntax.parsing.execute import take_name
from sqlserver_emulator.syntax.statements import InsertBulk
from sqlserver_emulator.types import TsqlType

_OPTIONS: Final = frozenset(("CHECK_CONSTRAINTS", "FIRE_TRIGGERS", "KEEP_NULLS", "TABLOCK"))
_SIZES: Final = frozenset(("KILOBYTES_PER_BATCH", "ROWS_PER_BATCH"))


def take_insert_bulk(cursor: Cursor) -> InsertBulk:
    line = cursor.line
    cursor.expect("INSERT", "BULK")
    table = take_name(cursor)
    columns: list[tuple[str, TsqlType]] = []
    if cursor.accept("("):
        columns.append(_take_column(cursor))
        while not cursor.accept(")"):
            cursor.expect(",")
            columns.append(_take_column(cursor))
    options = frozenset(_take_options(cursor)) if cursor.accept("WITH") else frozenset()
    return InsertBulk(line, table, tuple(columns), options)


def _take_column(cursor: Cursor) -> tuple[str, TsqlType]:
    name = identifier_value(cursor.take())
    type_ = take_type(cursor)
    if cursor.accept("COLLATE"):
        cursor.take()
    if not cursor.accept("NOT", "NULL"):
        cursor.accept("NULL")
    return name, type_


def _take_options(cursor: Cursor) -> list[str]:
    cursor.expect("(")
    found: list[str] = []
    while True:
        found.append(_take_option(cursor))
        if cursor.accept(")"):
            return found
        cursor.expect(",")


def _take_option(cursor: Cursor) -> str:
    """A batch size is a hint, and so is an order; neither changes what is loaded."""
    if cursor.word in _OPTIONS:
        return cursor.take().word
    if cursor.word in _SIZES:
        word = cursor.take().word
        cursor.expect("=")
        if cursor.token.kind != INTEGER:
            raise cursor.syntax_error()
        cursor.take()
        return word
    cursor.expect("ORDER", "(")
    while not cursor.accept(")"):
        cursor.take()
    return "ORDER"
