"""Tables of CHANGETABLE that are not tracked: the server finds them when it compiles a batch, before any of it runs."""

from __future__ import annotations

from collections.abc import Callable

from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading.taking import take_name
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import not_tracked
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_FORMS = frozenset(("CHANGES", "VERSION"))


def check_tracked_tables(text: str, find: Callable[[ObjectName], CatalogObject | None]) -> None:
    """Raise 22105. A table that is not there yet is left to the statement: the batch may make it."""
    cursor = Cursor(text)
    for at, token in enumerate(cursor.tokens):
        cursor.at = at
        if token.word != "CHANGETABLE" or cursor.word_after() != "(" or cursor.word_after(2) not in _FORMS:
            continue
        cursor.at = at + 3
        if not cursor.at_identifier():
            continue
        name = take_name(cursor)
        table = find(name)
        if table is not None and table.kind == "U" and not table.is_tracked and not name.is_temporary:
            raise not_tracked(str(name))
