"""Unique keys to which 'abc' and 'abc ' are one, as they are to SQL Server.

PostgreSQL's varchar distinguishes them. A key with such a column therefore has a second unique index, over the column
as bpchar, which ignores blanks at the end. It is named by the index that it is next to, so that renaming that one
leaves it alone, and an error of it can be reported as the other's.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.names import BLANKS_PREFIX, qualified, quote
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.system_types import names_where

# char(n) is PostgreSQL's own and ignores blanks; the types without a length can be no key.
_VARYING = names_where(lambda type: type.storage.startswith("varchar"))


def guard_key(
    scope: DdlScope, table: CatalogObject, key: str, index: str, columns: Sequence[CatalogColumn], *, condition: str
) -> None:
    """``key``: its T-SQL name. ``index``: the PostgreSQL name of its own index. ``condition``: of a filtered index."""
    if not any(column.type.name in _VARYING for column in columns):
        return
    keys = ", ".join(
        f"({quote(column.postgres_name)}::bpchar)" if column.type.name in _VARYING else quote(column.postgres_name)
        for column in columns
    )
    where = f" WHERE {condition}" if condition else ""
    scope.build_key(
        f"CREATE UNIQUE INDEX {quote(_guard_name(scope, table, index))} ON"
        # Like the key itself: several NULLs are duplicates for SQL Server.
        f" {qualified(table.postgres_schema, table.postgres_name)} ({keys}) NULLS NOT DISTINCT{where}",
        table,
        key,
    )


def drop_guard(scope: DdlScope, table: CatalogObject, index: str) -> None:
    """Before the key's own index goes."""
    scope.run(f"DROP INDEX IF EXISTS {qualified(table.postgres_schema, _guard_name(scope, table, index))}")


def _guard_name(scope: DdlScope, table: CatalogObject, index: str) -> str:
    return f"{BLANKS_PREFIX}{rows.object_id_of(scope, qualified(table.postgres_schema, index))}"
