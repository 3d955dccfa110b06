"""sp_rename: tables, views, procedures, constraints, columns and indexes."""

from __future__ import annotations

from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import log, rows
from sqlserver_emulator.engine.ddl.tables.table_sql import column_name
from sqlserver_emulator.engine.ddl.tracking import tables as tracking
from sqlserver_emulator.engine.names import index_name, postgres_name, qualified, quote
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.lexer import identifier_value, tokenize

_OBJECT = """
SELECT object_id, type, name, postgres_name, parent_object_id FROM emulator.objects
WHERE database_id = $1::int AND schema_id = $2::int AND lower(name) = lower($3) AND NOT is_system
"""
_RELATIONS = {"U": "TABLE", "V": "VIEW", "SO": "SEQUENCE"}
_KINDS = frozenset(("", "OBJECT", "COLUMN", "INDEX"))


def rename(scope: DdlScope, name: str, new_name: str, kind: str) -> None:
    """``kind``: '', OBJECT, COLUMN or INDEX. Raises 15225 (nothing of that name), 15335 (new name taken), 4928."""
    if kind.upper() not in _KINDS:
        raise NotSupportedByEmulatorError(f"sp_rename with @objtype = '{kind}'")
    # The name is split by tokens: a bracketed part may contain a dot.
    parts = [identifier_value(token) for token in tokenize(name) if token.word != "."]
    if kind.upper() == "COLUMN":
        _rename_column(scope, *_table_and_part(scope, parts, name, kind), new_name)
    elif kind.upper() == "INDEX":
        _rename_index(scope, *_table_and_part(scope, parts, name, kind), new_name)
    elif not kind and len(parts) > 1 and (found := _part_of_table(scope, parts)) is not None:
        # Without a type SQL Server takes the name for a column's, too.
        _rename_column(scope, *found, new_name)
    else:
        _rename_object(scope, parts, new_name, name)


def _part_of_table(scope: DdlScope, parts: list[str]) -> tuple[CatalogObject, str] | None:
    """The table and column of `[schema.]table.column`, if there are such."""
    if len(parts) > 3:
        return None
    try:
        table = scope.table(ObjectName(*reversed(parts[:-1])))
    except SqlServerError:
        return None
    is_column = table is not None and any(column.name.lower() == parts[-1].lower() for column in table.columns)
    return (table, parts[-1]) if table is not None and is_column else None


def _missing(scope: DdlScope, name: str, kind: str) -> SqlServerError:
    return SqlServerError(
        15225,
        f"No item by the name of '{name}' could be found in the current database '{scope.database}', given "
        "that @itemtype "
        f"was input as '{kind or '(null)'}'.",
        procedure="sp_rename",
    )


def _table_and_part(scope: DdlScope, parts: list[str], name: str, kind: str) -> tuple[CatalogObject, str]:
    """`[database.][schema.]table.part`."""
    table = scope.table(ObjectName(*reversed(parts[:-1]))) if 1 < len(parts) < 5 else None
    if table is None:
        raise _missing(scope, name, kind)
    return table, parts[-1]


def _rename_column(scope: DdlScope, table: CatalogObject, old: str, new: str) -> None:
    column = next((c for c in table.columns if c.name.lower() == old.lower()), None)
    if column is None:
        raise _missing(scope, f"{table.schema}.{table.name}.{old}", "COLUMN")
    if any(c.name.lower() == new.lower() and c is not column for c in table.columns):
        raise _taken(new, "COLUMN")
    # Change data capture refuses the renaming of a captured column (4928).
    hooks.before_rename_column(scope, table, column)
    target = qualified(table.postgres_schema, table.postgres_name)
    with tracking.columns_change(scope, table):
        scope.run(f"ALTER TABLE {target} RENAME COLUMN {quote(column.postgres_name)} TO {quote(column_name(new))}")
        scope.fetch(
            "UPDATE emulator.columns SET name = $3, postgres_name = $4"
            " WHERE object_id = $1::int AND column_id = $2::int",
            [table.object_id, column.column_id, new, column_name(new)],
        )
    rows.touch(scope, table.object_id)


def _rename_index(scope: DdlScope, table: CatalogObject, old: str, new: str) -> None:
    found = scope.fetch(
        "SELECT index_id, postgres_name, constraint_object_id FROM emulator.indexes"
        " WHERE object_id = $1::int AND lower(name) = lower($2)",
        [table.object_id, old],
    )
    if not found:
        raise _missing(scope, f"{table.schema}.{table.name}.{old}", "INDEX")
    index_id, postgres, constraint = found[0]
    # A constraint's index has the constraint's name in PostgreSQL, other indexes have the table's number in front.
    fresh = postgres_name(new) if constraint is not None else index_name(table.object_id, new)
    scope.run(f"ALTER INDEX {qualified(table.postgres_schema, postgres)} RENAME TO {quote(fresh)}")
    scope.fetch(
        "UPDATE emulator.indexes SET name = $3, postgres_name = $4 WHERE object_id = $1::int AND index_id = $2::int",
        [table.object_id, index_id, new, fresh],
    )
    if constraint is not None:
        sql = "UPDATE emulator.objects SET name = $2, postgres_name = $3 WHERE object_id = $1::int"
        scope.fetch(sql, [constraint, new, fresh])


def _taken(new: str, kind: str) -> SqlServerError:
    return SqlServerError(
        15335,
        f"Error: The new name '{new}' is already in use as a {kind} name and would cause a duplicate that "
        "is not permitted.",
        procedure="sp_rename",
    )


def _rename_object(scope: DdlScope, parts: list[str], new: str, text: str) -> None:
    name = ObjectName(*reversed(parts))
    home = scope.schema(name)
    found = scope.fetch(_OBJECT, [home.database_id, home.schema_id, name.name])
    if not found:
        raise _missing(scope, text, "")
    object_id, type_, _, postgres, parent = found[0]
    if scope.fetch(_OBJECT, [home.database_id, home.schema_id, new]):
        raise _taken(new, "object")
    renamed = scope.access.catalog.table_by_id(int(object_id)) if type_ == "U" else None
    if renamed is not None:
        hooks.before_rename_table(scope, renamed)
    fresh = postgres_name(new)
    if type_ in _RELATIONS:
        kind = _RELATIONS[type_]
        scope.run(f"ALTER {kind} {qualified(home.postgres_name, postgres)} RENAME TO {quote(fresh)}")
    # A constraint and its index are renamed together by PostgreSQL.
    elif type_ in ("PK", "UQ", "C", "F"):
        _rename_constraint(scope, int(parent), int(object_id), str(postgres), fresh, new)
    scope.fetch(
        "UPDATE emulator.objects SET name = $2, postgres_name = $3, modify_date = emulator.now() WHERE "
        "object_id = $1::int",
        [object_id, new, fresh],
    )
    table = scope.access.catalog.table_by_id(int(object_id)) if type_ == "U" else None
    if table is not None:
        log.table_changed(scope, table, "rename_table")


def _rename_constraint(  # noqa: PLR0917  (one caller)
    scope: DdlScope, parent: int, object_id: int, old: str, fresh: str, new: str
) -> None:
    table = scope.access.catalog.table_by_id(parent)
    if table is None:
        raise _missing(scope, new, "OBJECT")
    target = qualified(table.postgres_schema, table.postgres_name)
    scope.run(f"ALTER TABLE {target} RENAME CONSTRAINT {quote(old)} TO {quote(fresh)}")
    scope.fetch(
        "UPDATE emulator.indexes SET name = $2, postgres_name = $3 WHERE constraint_object_id = $1::int",
        [object_id, new, fresh],
    )
