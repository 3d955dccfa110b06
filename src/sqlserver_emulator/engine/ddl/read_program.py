"""CREATE VIEW and CREATE PROCEDURE: what comes before AS. The rest is the translator's and the interpreter's."""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.engine.ddl.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading import take_column_names, take_name
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.tsql.parsing.cursor import Cursor


@dataclass(frozen=True, slots=True)
class ViewText:
    name: ObjectName
    columns: tuple[str, ...]
    query: str


def take_view(cursor: Cursor) -> ViewText:
    """From the name on."""
    name = take_name(cursor)
    columns = take_column_names(cursor) if cursor.word == "(" else ()
    if cursor.accept("WITH"):
        while cursor.word != "AS":
            if cursor.word == "SCHEMABINDING":
                raise NotSupportedByEmulatorError("views WITH SCHEMABINDING")
            cursor.take()
    cursor.expect("AS")
    query = cursor.text[cursor.token.start :].strip().removesuffix(";")
    if query.upper().rstrip().endswith("WITH CHECK OPTION"):
        raise NotSupportedByEmulatorError("views WITH CHECK OPTION")
    return ViewText(name, columns, query)


def read_view(definition: str) -> tuple[tuple[str, ...], str]:
    """Columns and query of a stored CREATE or ALTER VIEW."""
    cursor = Cursor(definition)
    while not cursor.accept("VIEW"):
        cursor.take()
    view = take_view(cursor)
    return view.columns, view.query
