"""Unique keys of strings, which are equal where their collation says so; blanks at the end never count.

PostgreSQL's varchar distinguishes such strings. A key with a string therefore has a second unique index, over what is
compared in place of the string: the key of its collation, or bpchar, which ignores blanks at the end. It is named by
the index that it is next to, so that renaming that one leaves it alone, and an error of it can be reported as the
other's.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlserver_emulator.engine.ddl.compared import compared_sql
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.names import BLANKS_PREFIX, qualified, quote
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject

_GUARDS = """
SELECT g.relname, k.relname FROM pg_index i
JOIN pg_class k ON k.oid = i.indexrelid
JOIN pg_class g ON g.relnamespace = k.relnamespace AND g.relname = $1 || k.oid
WHERE i.indrelid = $2::oid
"""


def guard_key(
    scope: DdlScope, table: CatalogObject, key: str, index: str, columns: Sequence[CatalogColumn], *, condition: str
) -> None:
    """``key``: its T-SQL name. ``index``: the PostgreSQL name of its own index. ``condition``: of a filtered index."""
    keys = [compared_sql(column) for column in columns]
    if all(sql == quote(column.postgres_name) for sql, column in zip(keys, columns, strict=True)):
        return
    where = f" WHERE {condition}" if condition else ""
    scope.build_key(
        f"CREATE UNIQUE INDEX {quote(_guard_name(scope, table, index))} ON"
        # Like the key itself: several NULLs are duplicates for SQL Server.
        f" {qualified(table.postgres_schema, table.postgres_name)} ({', '.join(keys)}) NULLS NOT DISTINCT{where}",
        table,
        key,
    )


def drop_guard(scope: DdlScope, table: CatalogObject, index: str) -> None:
    """Before the key's own index goes."""
    scope.run(f"DROP INDEX IF EXISTS {qualified(table.postgres_schema, _guard_name(scope, table, index))}")


def guards_of(scope: DdlScope, table: CatalogObject) -> list[tuple[str, str]]:
    """Return the PostgreSQL names of the table's guards, each with that of its key."""
    return [(str(guard), str(key)) for guard, key in scope.fetch(_GUARDS, [BLANKS_PREFIX, table.object_id])]


def rename_guards(scope: DdlScope, table: CatalogObject, guards: Sequence[tuple[str, str]]) -> None:
    """After PostgreSQL made keys again, which then have other OIDs. ``guards``: as they were before."""
    for guard, key in guards:
        name = _guard_name(scope, table, key)
        if name != guard:
            scope.run(f"ALTER INDEX {qualified(table.postgres_schema, guard)} RENAME TO {quote(name)}")


def _guard_name(scope: DdlScope, table: CatalogObject, index: str) -> str:
    return f"{BLANKS_PREFIX}{rows.object_id_of(scope, qualified(table.postgres_schema, index))}"
