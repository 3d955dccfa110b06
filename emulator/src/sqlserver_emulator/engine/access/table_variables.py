"""Table variables that are used again: a procedure declares the same ones at every call, and making a table is slow.

A variable that goes out of scope leaves its PostgreSQL table behind, under a name that its declaration gives; the next
scope at the same depth with the same declaration empties it and has it. A rollback may have taken the table away: that
is checked whenever one is used again.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sqlserver_emulator.engine.catalog.cache import Relation
from sqlserver_emulator.engine.catalog.session_catalog import SessionCatalog
from sqlserver_emulator.engine.names import postgres_name, qualified
from sqlserver_emulator.engine.translation import CatalogObject

_DECLARED: Final = re.compile(r"CREATE TABLE (@\S+) \(")
_DROPPED: Final = re.compile(r"DROP TABLE IF EXISTS (@\S+)")
_KEPT_MAX: Final = 100

_Key = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Remains:
    """Prepared statements, and tables of table variables: a session leaves them for the next one of its login on its
    connection, while the catalog is the same."""

    login: str
    version: int
    tables: dict[_Key, Relation]


def variable_name(name: str, depth: int, declaration: str) -> str:
    """The PostgreSQL name of a table variable."""
    # The checksum separates variables of one name and depth with different declarations.
    return postgres_name(f"{name}~{depth}~{zlib.crc32(declaration.encode()):08x}")


class CatalogAccess(Protocol):
    """The part of SessionAccess that is used."""

    @property
    def catalog(self) -> SessionCatalog: ...

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]: ...


class TableVariables:
    """The table variables of one session.

    Statements are those that the interpreter makes of DECLARE and of a scope's end.
    """

    def __init__(self, access: CatalogAccess, left: dict[_Key, Relation]) -> None:
        """left: tables that are there already, and not in use."""
        self._access = access
        self.left = left
        self._used: dict[tuple[str, int], _Key] = {}

    def take(self, statement: str, database: str) -> bool:
        """Whether the statement declared a table variable whose table was there already."""
        declared = _DECLARED.match(statement)
        if declared is None:
            return False
        catalog = self._access.catalog
        # The version is part of the key: an alias type in the declaration may have changed since.
        key = (statement, database, catalog.scope_depth, catalog.shared_version)
        self._used[declared[1].lower(), catalog.scope_depth] = key
        relation = self.left.pop(key, None)
        table = relation.table if relation is not None else None
        if table is None or relation is None or not self._emptied(table):
            name = variable_name(declared[1], catalog.scope_depth, statement)
            self._access.fetch(f"DROP TABLE IF EXISTS {qualified('pg_temp', name)}")
            return False
        catalog.add_temporary(relation)
        return True

    def leave(self, statement: str) -> bool:
        """Whether the statement dropped a table variable, whose table is kept."""
        dropped = _DROPPED.fullmatch(statement)
        if dropped is None:
            return False
        catalog = self._access.catalog
        key = self._used.pop((dropped[1].lower(), catalog.scope_depth), None)
        relation = catalog.temporary(dropped[1])
        # Beyond the limit the table is dropped as the statement says.
        if key is None or relation is None or len(self.left) >= _KEPT_MAX:
            return False
        self.left[key] = relation
        catalog.drop_temporary(dropped[1])
        return True

    def _emptied(self, table: CatalogObject) -> bool:
        # The identity column starts again from its seed, as in a new table variable.
        identity = next((column.postgres_name for column in table.columns if column.identity), "")
        sql = "SELECT emulator.empty_table_variable($1, $2::oid, $3)"
        target = qualified(table.postgres_schema, table.postgres_name)
        return bool(self._access.fetch(sql, [target, table.object_id, identity])[0][0])
