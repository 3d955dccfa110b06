"""CREATE VIEW and CREATE PROCEDURE: what comes before AS. The rest is the translator's and the interpreter's."""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading.taking import take_column_names, take_name
from sqlserver_emulator.syntax.parsing.cursor import Cursor


@dataclass(frozen=True, slots=True)
class ViewText:
    """A view's name, column list and query."""

    name: ObjectName
    columns: tuple[str, ...]
    query: str
    checks: bool = False
    """WITH CHECK OPTION."""


def take_view(cursor: Cursor) -> ViewText:
    """From the name on."""
    name = take_name(cursor)
    columns = take_column_names(cursor) if cursor.word == "(" else ()
    if cursor.accept("WITH"):
        while cursor.word != "AS":
            cursor.take()
    cursor.expect("AS")
    query = cursor.text[cursor.token.start :].strip().removesuffix(";")
    checks = [token.word for token in cursor.tokens if token.word not in ("", ";")][-3:] == ["WITH", "CHECK", "OPTION"]
    if checks:
        query = query[: query.upper().rindex("WITH")].rstrip()
    return ViewText(name, columns, query, checks)


def read_view(definition: str) -> ViewText:
    """A stored CREATE or ALTER VIEW."""
    cursor = Cursor(definition)
    while not cursor.accept("VIEW"):
        cursor.take()
    return take_view(cursor)
