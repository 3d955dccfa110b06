"""Which masked columns one session's login reads as masks: asked once for each table and version of the catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from sqlserver_emulator.engine.catalog.cache import Fetch
from sqlserver_emulator.engine.translation import CatalogObject, InlineFunction
from sqlserver_emulator.errors import NotSupportedByEmulatorError

_HIDDEN = "SELECT column_id FROM emulator.hidden_columns($1::int) AS h(column_id)"
_BEHIND_VIEW = """
SELECT EXISTS (SELECT 1 FROM emulator.tables_of_view($1::int) AS t(id), emulator.hidden_columns(t.id))
"""
_IN_DATABASE = """
SELECT EXISTS (SELECT 1 FROM emulator.objects o JOIN emulator.databases d ON d.database_id = o.database_id,
    emulator.hidden_columns(o.object_id) WHERE d.name = $1::varchar)
"""
_SERVER_SCHEMAS = ("cdc", "sys")


class HiddenValues:
    """``is_sysadmin``: a sysadmin reads through every mask."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.is_sysadmin = False
        self._version = 0
        self._known: dict[tuple[str, object], Any] = {}

    def table(self, table: CatalogObject, version: int) -> CatalogObject:
        """The table with the masks that hold for the caller. Raises 49999 for a view over hidden columns."""
        if table.kind == "V" and not self.is_sysadmin and self._ask(_BEHIND_VIEW, table.object_id, version)[0][0]:
            raise NotSupportedByEmulatorError("a view over masked columns, for a login without UNMASK")
        if not any(column.mask for column in table.columns):
            return table
        hidden = set()
        if not self.is_sysadmin:
            hidden = {cast(int, row[0]) for row in self._ask(_HIDDEN, table.object_id, version)}
        columns = tuple(c if c.column_id in hidden else replace(c, mask="") for c in table.columns)
        return replace(table, columns=columns)

    def refuse_function(self, function: InlineFunction, version: int) -> None:
        """Raise 49999 for a user's function, whose body may read hidden columns. Change tables have no masks."""
        if self.is_sysadmin or function.schema in _SERVER_SCHEMAS:
            return
        if self._ask(_IN_DATABASE, function.database, version)[0][0]:
            raise NotSupportedByEmulatorError(
                "an inline function in a database with masked columns, for a login without UNMASK"
            )

    def _ask(self, question: str, about: object, version: int) -> list[tuple[object, ...]]:
        # Grants, roles and masks change with the catalog.
        if version != self._version:
            self._version, self._known = version, {}
        key = (question, about)
        if key not in self._known:
            self._known[key] = self._fetch(question, [about])
        return cast(list[tuple[object, ...]], self._known[key])
