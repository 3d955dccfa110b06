"""ALTER TABLE … ALTER COLUMN: another type, other nullability."""

# ruff: noqa: S608  (names are quoted by ``names``)

from __future__ import annotations

from dataclasses import replace

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.engine.ddl.reading.read_alter import ColumnChange
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import log
from sqlserver_emulator.engine.ddl.tables.blank_keys import guards_of, rename_guards
from sqlserver_emulator.engine.ddl.tables.table_sql import limit_clauses, limit_name
from sqlserver_emulator.engine.names import LENGTH_SUFFIX, RANGE_SUFFIX, bracketed, qualified, quote
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.system_types import BY_NAME, names_where
from sqlserver_emulator.system_types.binaries import ROWVERSION
from sqlserver_emulator.system_types.others import SQL_VARIANT, VARIANT_VALUES
from sqlserver_emulator.system_types.record import BINARY, DECIMAL, INTEGER
from sqlserver_emulator.types import TsqlType

COMPUTED_FROM = """
SELECT c.name FROM pg_depend d
JOIN pg_attrdef g ON g.oid = d.objid AND d.classid = 'pg_attrdef'::regclass
JOIN pg_attribute a ON a.attrelid = g.adrelid AND a.attnum = g.adnum AND a.attgenerated <> ''
JOIN emulator.columns c ON c.object_id = a.attrelid::bigint AND c.attnum = a.attnum
JOIN emulator.columns used ON used.object_id = $1::int AND used.column_id = $2::int
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::oid AND d.refobjsubid = used.attnum
  AND c.column_id <> used.column_id
"""
_DEPENDENTS = f"""
SELECT o.name FROM emulator.objects o
JOIN emulator.check_constraints k ON k.object_id = o.object_id
WHERE k.parent_object_id = $1::int AND k.parent_column_id = $2::int
UNION ALL
SELECT i.name FROM emulator.indexes i
JOIN emulator.index_columns c ON c.object_id = i.object_id AND c.index_id = i.index_id
WHERE i.object_id = $1::int AND c.column_id = $2::int AND i.constraint_object_id IS NOT NULL
UNION ALL {COMPUTED_FROM}"""
_INDEXES = """
SELECT i.name FROM emulator.indexes i
JOIN emulator.index_columns c ON c.object_id = i.object_id AND c.index_id = i.index_id
WHERE i.object_id = $1::int AND c.column_id = $2::int AND NOT c.is_included_column
"""
_DEFAULT = """
SELECT d.definition FROM emulator.default_constraints d
WHERE d.parent_object_id = $1::int AND d.parent_column_id = $2::int
"""

_FAMILIES = {
    **dict.fromkeys(names_where(lambda type: type.has_collation), "text"),
    **dict.fromkeys(names_where(lambda type: type.is_number and type.family in (INTEGER, DECIMAL)), "number"),
    **dict.fromkeys(names_where(lambda type: type.family == BINARY and type is not ROWVERSION), "binary"),
}
"""Types between which PostgreSQL's own conversion is T-SQL's."""


def change_column(scope: DdlScope, table: CatalogObject, change: ColumnChange) -> None:
    """Raises 4924 (no such column), 4928 (not alterable), 5074 (a key depends on its type), 515 (NULLs there)."""
    old = _alterable(table, change)
    new = replace(
        old, type=change.type, nullable=change.nullable is not False, collation=_collation(scope, table, change)
    )
    retyped = scope.postgres_type(new.type) != scope.postgres_type(old.type)
    if new.collation != old.collation and old.collation is not None:
        _refuse_indexed(scope, table, old)
    if retyped:
        # Another length is allowed under a key; another type is not.
        _refuse_dependents(scope, table, old, any_dependent=old.type.name != new.type.name)
    hooks.before_alter_column(scope, table, old)
    # Before the type changes: the old limit might reject the converted values.
    _change_limits(scope, table, old, None)
    if retyped:
        _change_type(scope, table, old, new)
    _change_limits(scope, table, None, new)
    if new.nullable != old.nullable:
        _change_nullability(scope, table, new)
    scope.fetch(
        "UPDATE emulator.columns SET type_name = $3, length = $4::int, precision = $5::int, scale = $6::int,"
        " is_nullable = $7::boolean, user_type_id = $8::int, collation_name = $9"
        " WHERE object_id = $1::int AND column_id = $2::int",
        [
            table.object_id,
            old.column_id,
            *_facets(new.type),
            new.nullable,
            change.alias_type_id,
            new.collation.name if new.collation is not None else None,
        ],
    )
    log.table_changed(
        scope, table, "alter_column", column_id=old.column_id, required_column_update=old.type != new.type
    )


def _collation(scope: DdlScope, table: CatalogObject, change: ColumnChange) -> Collation | None:
    """Without COLLATE the column gets the database's collation, whatever it had."""
    if BY_NAME[change.type.name].has_collation:
        return scope.collation(change.collation, table)
    if change.collation:
        raise SqlServerError(447, f"Expression type {change.type.name} is invalid for COLLATE clause.", state=0)
    return None


def _refuse_indexed(scope: DdlScope, table: CatalogObject, column: CatalogColumn) -> None:
    """No index bears another collation of its column."""
    found = scope.fetch(f"{_INDEXES} UNION ALL {_DEPENDENTS}", [table.object_id, column.column_id])
    if found:
        raise SqlServerError(5074, f"The object '{found[0][0]}' is dependent on column '{column.name}'.")


def _facets(type_: TsqlType) -> tuple[str, int, int, int]:
    return type_.name, type_.length, type_.precision, type_.scale


def _alterable(table: CatalogObject, change: ColumnChange) -> CatalogColumn:
    found = next((c for c in table.columns if c.name.lower() == change.column.lower()), None)
    if found is None:
        message = (
            f"ALTER TABLE ALTER COLUMN failed because column '{change.column}' does not exist in table '{table.name}'."
        )
        raise SqlServerError(4924, message)
    if found.computed or found.type.name == "rowversion":
        kind = "COMPUTED" if found.computed else "timestamp"
        raise SqlServerError(4928, f"Cannot alter column '{found.name}' because it is '{kind}'.")
    return found


def _refuse_dependents(scope: DdlScope, table: CatalogObject, column: CatalogColumn, *, any_dependent: bool) -> None:
    """Keys and checks bear a change of length, computed columns nothing."""
    sql = _DEPENDENTS if any_dependent else COMPUTED_FROM
    found = scope.fetch(sql, [table.object_id, column.column_id])
    if found:
        raise SqlServerError(5074, f"The object '{found[0][0]}' is dependent on column '{column.name}'.")


def _change_type(scope: DdlScope, table: CatalogObject, old: CatalogColumn, new: CatalogColumn) -> None:
    target, column = qualified(table.postgres_schema, table.postgres_name), quote(old.postgres_name)
    # PostgreSQL converts a default with the column, or fails; it is made again from its T-SQL text.
    default = scope.fetch(_DEFAULT, [table.object_id, old.column_id])
    if default:
        scope.run(f"ALTER TABLE {target} ALTER COLUMN {column} DROP DEFAULT")
    # Within a family the conversion is PostgreSQL's of an assignment: what does not fit fails, as in T-SQL.
    using = ""
    if _FAMILIES.get(old.type.name) is None or _FAMILIES.get(old.type.name) != _FAMILIES.get(new.type.name):
        using = f" USING {_converted(scope, table, old, new)}"
    # PostgreSQL rebuilds keys over the column, which needs them to be checked at once (ADR 30, "Consequences").
    scope.fetch("SELECT emulator.check_keys_at_once($1::oid)", [table.object_id])
    guards = guards_of(scope, table)
    scope.fetch("SELECT emulator.compare_keys_plainly($1::oid)", [table.object_id])
    scope.run(f"ALTER TABLE {target} ALTER COLUMN {column} TYPE {scope.postgres_type(new.type)}{using}")
    scope.fetch("SELECT emulator.compare_keys_by_collation($1::oid)", [table.object_id])
    rename_guards(scope, table, guards)
    scope.check_keys_at_end(table)
    if default:
        sql = scope.scalar(str(default[0][0]), new.type)
        scope.run(f"ALTER TABLE {target} ALTER COLUMN {column} SET DEFAULT {sql}")


def _converted(scope: DdlScope, table: CatalogObject, old: CatalogColumn, new: CatalogColumn) -> str:
    if new.type.name != SQL_VARIANT.name:
        return scope.over_table(f"CAST({bracketed(old.name)} AS {new.type})", table)[0]
    target = qualified(table.postgres_schema, table.postgres_name)
    if scope.fetch(f"SELECT 1 FROM {target} WHERE {quote(old.postgres_name)} IS NOT NULL LIMIT 1"):
        raise NotSupportedByEmulatorError(VARIANT_VALUES)
    return f"NULL::{scope.postgres_type(new.type)}"


def _change_limits(scope: DdlScope, table: CatalogObject, old: CatalogColumn | None, new: CatalogColumn | None) -> None:
    target = qualified(table.postgres_schema, table.postgres_name)
    if old is not None:
        for suffix in (RANGE_SUFFIX, LENGTH_SUFFIX):
            scope.run(f"ALTER TABLE {target} DROP CONSTRAINT IF EXISTS {quote(limit_name(old, suffix))}")
    for clause in limit_clauses(new) if new is not None else ():
        scope.run(f"ALTER TABLE {target} ADD {clause}")


def _change_nullability(scope: DdlScope, table: CatalogObject, column: CatalogColumn) -> None:
    target, name = qualified(table.postgres_schema, table.postgres_name), quote(column.postgres_name)
    if column.nullable:
        if column.name in table.key_columns:
            raise SqlServerError(5074, f"The primary key of '{table.name}' is dependent on column '{column.name}'.")
        scope.run(f"ALTER TABLE {target} ALTER COLUMN {name} DROP NOT NULL")
        return
    if scope.fetch(f"SELECT 1 FROM {target} WHERE {name} IS NULL LIMIT 1"):
        raise SqlServerError(
            515,
            f"Cannot insert the value NULL into column '{column.name}', table '{table.database}.{table.schema}."
            f"{table.name}'; column does not allow nulls. UPDATE fails.",
            state=2,
        )
    scope.run(f"ALTER TABLE {target} ALTER COLUMN {name} SET NOT NULL")
