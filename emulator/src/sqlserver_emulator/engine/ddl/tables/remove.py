"""ALTER TABLE … DROP: columns and constraints."""

# ruff: noqa: S608  (only fixed texts are put together)

from __future__ import annotations

from collections.abc import Sequence

from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import log
from sqlserver_emulator.engine.ddl.tables.alter_column import COMPUTED_FROM
from sqlserver_emulator.engine.ddl.tables.blank_keys import drop_guard
from sqlserver_emulator.engine.ddl.tracking import tables as tracking
from sqlserver_emulator.engine.names import qualified, quote
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import SqlServerError

_CONSTRAINT = """
SELECT o.object_id, o.type, o.name, o.postgres_name FROM emulator.objects o
WHERE o.parent_object_id = $1::int AND lower(o.name) = lower($2) AND o.type IN ('PK', 'UQ', 'C', 'D', 'F')
"""
_COLUMN_DEPENDENTS = f"""
SELECT o.name FROM emulator.objects o JOIN emulator.columns c ON c.object_id = o.parent_object_id
WHERE o.parent_object_id = $1::int AND c.column_id = $2::int AND o.object_id = c.default_object_id
UNION ALL
SELECT i.name FROM emulator.indexes i
JOIN emulator.index_columns c ON c.object_id = i.object_id AND c.index_id = i.index_id
WHERE i.object_id = $1::int AND c.column_id = $2::int
UNION ALL
SELECT o.name FROM emulator.check_constraints k JOIN emulator.objects o ON o.object_id = k.object_id
WHERE k.parent_object_id = $1::int AND k.parent_column_id = $2::int
UNION ALL
SELECT o.name FROM emulator.foreign_key_columns fc JOIN emulator.foreign_keys f ON f.object_id = fc.object_id
JOIN emulator.objects o ON o.object_id = f.object_id
WHERE (f.parent_object_id = $1::int AND fc.parent_column_id = $2::int)
   OR (f.referenced_object_id = $1::int AND fc.referenced_column_id = $2::int)
UNION ALL {COMPUTED_FROM}"""
_REFERENCING = """
SELECT o.name, p.name FROM emulator.foreign_keys f
JOIN emulator.indexes i ON i.object_id = f.referenced_object_id AND i.index_id = f.key_index_id
JOIN emulator.objects o ON o.object_id = f.object_id JOIN emulator.objects p ON p.object_id = f.parent_object_id
WHERE i.constraint_object_id = $1::int LIMIT 1
"""


def drop_columns(scope: DdlScope, table: CatalogObject, names: Sequence[str], *, if_exists: bool) -> None:
    """Raises 4924 (no such column) and 5074/4922 (a default, index or constraint depends on it)."""
    target = qualified(table.postgres_schema, table.postgres_name)
    for name in names:
        column = _find(table, name)
        if column is None:
            if if_exists:
                continue
            message = f"ALTER TABLE DROP COLUMN failed because column '{name}' does not exist in table '{table.name}'."
            raise SqlServerError(4924, message)
        # PostgreSQL would drop indexes and constraints over the column without an error.
        dependents = scope.fetch(_COLUMN_DEPENDENTS, [table.object_id, column.column_id])
        if dependents:
            raise SqlServerError(5074, f"The object '{dependents[0][0]}' is dependent on column '{column.name}'.")
        hooks.before_drop_column(scope, table, column)
        scope.run(f"ALTER TABLE {target} DROP COLUMN {quote(column.postgres_name)}")
        if column.type.name == "rowversion":
            # The trigger writes to the dropped column.
            scope.run(f'DROP TRIGGER "rowversion" ON {target}')
        scope.fetch(
            "DELETE FROM emulator.columns WHERE object_id = $1::int AND column_id = $2::int",
            [table.object_id, column.column_id],
        )
        log.table_changed(scope, table, "drop_column", column_id=column.column_id)


def _find(table: CatalogObject, name: str) -> CatalogColumn | None:
    return next((c for c in table.columns if c.name.lower() == name.lower()), None)


def drop_constraints(scope: DdlScope, table: CatalogObject, names: Sequence[str], *, if_exists: bool) -> None:
    """Raises 3728 (no such constraint) and 3725 (a foreign key refers to it)."""
    for name in names:
        found = scope.fetch(_CONSTRAINT, [table.object_id, name])
        if not found:
            if if_exists:
                continue
            raise SqlServerError(3728, f"'{name}' is not a constraint.")
        object_id, kind, real_name, postgres_name = found[0]
        if kind == "D":
            _drop_default(scope, table, object_id)
        else:
            _drop_constraint(scope, table, object_id, kind=kind, name=real_name, postgres_name=postgres_name)
        scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [object_id])
        # The DDL history has the statement, too.
        log.table_changed(scope, table, "other")


def _drop_default(scope: DdlScope, table: CatalogObject, object_id: int) -> None:
    rows = scope.fetch(
        "UPDATE emulator.columns SET default_object_id = 0 WHERE object_id = $1::int AND default_object_id = $2::int"
        " RETURNING postgres_name",
        [table.object_id, object_id],
    )
    target = qualified(table.postgres_schema, table.postgres_name)
    for (column,) in rows:
        scope.run(f"ALTER TABLE {target} ALTER COLUMN {quote(column)} DROP DEFAULT")


def _drop_constraint(
    scope: DdlScope, table: CatalogObject, object_id: int, *, kind: str, name: str, postgres_name: str
) -> None:
    if kind in ("PK", "UQ"):
        if referencing := scope.fetch(_REFERENCING, [object_id]):
            other, other_table = referencing[0]
            message = f"The constraint '{name}' is being referenced by table '{other_table}', foreign key '{other}'."
            raise SqlServerError(3725, message, state=0)
        if kind == "PK":
            tracking.refuse_without_key(scope, table, name)
        hooks.before_drop_index(scope, table, name, constraint=True)
        scope.fetch(
            "DELETE FROM emulator.indexes WHERE object_id = $1::int AND constraint_object_id = $2::int",
            [table.object_id, object_id],
        )
        # The guard is found by the OID of the key's index, so it goes before the key.
        drop_guard(scope, table, postgres_name)
    target = qualified(table.postgres_schema, table.postgres_name)
    scope.run(f"ALTER TABLE {target} DROP CONSTRAINT {quote(postgres_name)}")
    if kind == "F":
        # The keys it referred to no longer cascade from here and may be checked at the end.
        scope.fetch("SELECT emulator.free_referenced_keys($1::int)", [table.object_id])
