"""Applies ALTER TABLE: columns and constraints that come, change and go."""

# ruff: noqa: S608  (names are quoted by ``names``)

from __future__ import annotations

from sqlserver_emulator.engine.ddl.filegroups import check_data_spaces
from sqlserver_emulator.engine.ddl.programs.triggers import switch_triggers
from sqlserver_emulator.engine.ddl.reading.declarations import DefaultDeclaration, KeyDeclaration, ObjectName
from sqlserver_emulator.engine.ddl.reading.read_alter import (
    Additions,
    Change,
    ColumnChange,
    ConstraintSwitch,
    MaskChange,
    Removals,
    TrackingSwitch,
    TriggerSwitch,
)
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import log, rows
from sqlserver_emulator.engine.ddl.tables.alter_column import change_column
from sqlserver_emulator.engine.ddl.tables.constraints import add_constraint, add_default
from sqlserver_emulator.engine.ddl.tables.counters import attach_counters, create_counters
from sqlserver_emulator.engine.ddl.tables.indexes import create_index
from sqlserver_emulator.engine.ddl.tables.masking import check_mask, set_mask
from sqlserver_emulator.engine.ddl.tables.remove import drop_columns, drop_constraints
from sqlserver_emulator.engine.ddl.tables.table_sql import PlannedColumn, plan_columns, with_columns
from sqlserver_emulator.engine.ddl.tables.tables import stamp_rowversion
from sqlserver_emulator.engine.ddl.tracking import tables as tracking
from sqlserver_emulator.engine.names import qualified, quote
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError


def alter_table(scope: DdlScope, name: ObjectName, change: Change) -> None:
    """Raises 4902 when there is no such table."""
    table = scope.existing_table(name)
    if table.kind != "U":
        raise SqlServerError(4909, f"Cannot alter '{name}' because it is not a table.")
    if isinstance(change, TrackingSwitch) and change.enabled:
        tracking.enable(scope, name, table, tracks_columns=change.tracks_columns)
    elif isinstance(change, TrackingSwitch):
        tracking.disable(scope, table)
    elif name.is_temporary:
        raise NotSupportedByEmulatorError("ALTER TABLE of a temporary table")
    elif isinstance(change, (Additions, ColumnChange, Removals)):
        with tracking.columns_change(scope, table):
            _change_columns(scope, name, table, change)
    elif isinstance(change, MaskChange):
        set_mask(scope, table, change.column, change.mask)
        log.table_changed(scope, table, "other")
    elif isinstance(change, ConstraintSwitch):
        _switch(scope, table, change)
    elif isinstance(change, TriggerSwitch):
        switch_triggers(scope, table, change.names, enabled=change.enabled)
    rows.touch(scope, table.object_id)


def _change_columns(
    scope: DdlScope, name: ObjectName, table: CatalogObject, change: Additions | ColumnChange | Removals
) -> None:
    """Columns, and constraints with them."""
    if isinstance(change, Additions):
        _add(scope, name, table, change)
    elif isinstance(change, ColumnChange):
        change_column(scope, table, change)
        if change.mask is not None:
            set_mask(scope, table, change.column, change.mask)
    else:
        drop_constraints(scope, table, change.constraints, if_exists=change.if_exists)
        drop_columns(scope, table, change.columns, if_exists=change.if_exists)


def _add(scope: DdlScope, name: ObjectName, table: CatalogObject, additions: Additions) -> None:
    home = scope.schema(ObjectName(table.name, table.schema, table.database))
    check_data_spaces(scope, home.database, additions.data_spaces)
    keys = [c for c in additions.constraints if isinstance(c, KeyDeclaration)]
    # Columns first: constraints and defaults of the same statement may be about them.
    first_free = _next_column_id(scope, table)
    planned = plan_columns(scope, table, additions.columns, keys, first_free)
    for item in planned:
        check_mask(item.column, item.declaration.mask)
        _add_column(scope, table, item)
    rows.insert_columns(scope, table.object_id, planned)
    table = with_columns(table, [*table.columns, *(p.column for p in planned)])
    for item in planned:
        if item.declaration.default is not None:
            # The default is in PostgreSQL already, as part of ADD COLUMN.
            add_default(scope, home, table, item.declaration.default, set_in_postgres=False)
        if item.column.type.name == "rowversion":
            stamp_rowversion(scope, table, item.column.postgres_name)
        log.table_changed(scope, table, "add_column", column_id=item.column.column_id)
    for constraint in additions.constraints:
        add_constraint(scope, home, table, constraint)
    for default in additions.defaults:
        add_default(scope, home, table, default, set_in_postgres=True)
    for index in additions.indexes:
        create_index(scope, table, index)
    # The log has one entry for each new column; a statement without any is logged once.
    if not planned:
        log.table_changed(scope, table, "other")


def _next_column_id(scope: DdlScope, table: CatalogObject) -> int:
    """Ids of dropped columns are not used again: change data capture knows columns by id."""
    sql = "SELECT max(attnum) + 1 FROM pg_attribute WHERE attrelid = $1::oid"
    return int(scope.fetch(sql, [table.object_id])[0][0])


def _add_column(scope: DdlScope, table: CatalogObject, planned: PlannedColumn) -> None:
    """A nullable column leaves existing rows NULL although it has a default, unless WITH VALUES was said."""
    target = qualified(table.postgres_schema, table.postgres_name)
    default: DefaultDeclaration | None = planned.declaration.default
    if default is not None and planned.column.nullable and not default.with_values:
        column = quote(planned.column.postgres_name)
        # In two steps: ADD COLUMN with a DEFAULT would fill the existing rows.
        scope.run(f"ALTER TABLE {target} ADD COLUMN {planned.sql_without_default}")
        scope.run(f"ALTER TABLE {target} ALTER COLUMN {column} SET DEFAULT {planned.default_sql}")
        return
    if default is None and not planned.column.nullable and not _fills_itself(planned) and _has_rows(scope, target):
        raise SqlServerError(
            4901,
            "ALTER TABLE only allows columns to be added that can contain nulls, or have a DEFAULT "
            "definition specified, "
            "or the column being added is an identity or timestamp column, or alternatively if none of the previous "
            "conditions are satisfied the table must be empty to allow addition of this column. Column "
            f"'{planned.column.name}' cannot be added to non-empty table '{table.name}' because it does "
            "not satisfy these "
            "conditions.",
        )
    if planned.column.type.name == "rowversion":
        _add_rowversion(scope, table, planned, target)
        return
    create_counters(scope, [planned], is_temporary=False)
    scope.run(f"ALTER TABLE {target} ADD COLUMN {planned.sql}")
    attach_counters(scope, [planned], target)


def _add_rowversion(scope: DdlScope, table: CatalogObject, planned: PlannedColumn, target: str) -> None:
    """Existing rows get a value each."""
    column = quote(planned.column.postgres_name)
    sequence = scope.fetch("SELECT rowversion_sequence FROM emulator.databases WHERE name = $1", [table.database])[0][0]
    # Nullable while the rows are filled; the trigger is created later and stamps new rows only.
    scope.run(f"ALTER TABLE {target} ADD COLUMN {column} bytea")
    scope.run(f"UPDATE {target} SET {column} = int8send(nextval('{sequence}'))")
    scope.run(f"ALTER TABLE {target} ALTER COLUMN {column} SET NOT NULL")


def _fills_itself(planned: PlannedColumn) -> bool:
    return planned.column.identity or planned.column.computed or planned.column.type.name == "rowversion"


def _has_rows(scope: DdlScope, target: str) -> bool:
    return bool(scope.fetch(f"SELECT 1 FROM {target} LIMIT 1"))


# Only the definition is kept: what the constraint's state was is replaced by the new one.
_CHECK_SQL = """
SELECT regexp_replace(pg_get_constraintdef(c.oid), '( NO INHERIT)?( NOT ENFORCED)?( NOT VALID)?$', '')
FROM pg_constraint c WHERE c.conrelid = $1::oid AND c.conname = $2
"""


def _switch_check(scope: DdlScope, table: CatalogObject, constraint: str, change: ConstraintSwitch) -> None:
    """PostgreSQL switches only foreign keys; a CHECK constraint is made again."""
    target, name = qualified(table.postgres_schema, table.postgres_name), quote(constraint)
    definition = scope.fetch(_CHECK_SQL, [table.object_id, constraint])[0][0]
    # NOT VALID checks new rows only, as WITH NOCHECK does.
    state = "NOT ENFORCED" if not change.enabled else "" if change.validate else "NOT VALID"
    scope.run(f"ALTER TABLE {target} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} {definition} {state}")
    scope.fetch(
        "UPDATE emulator.check_constraints k SET is_disabled = $3::boolean, is_not_trusted = $4::boolean"
        " FROM emulator.objects o WHERE o.object_id = k.object_id AND k.parent_object_id = $1::int"
        " AND o.postgres_name = $2",
        [table.object_id, constraint, not change.enabled, state != ""],
    )


def _switch_foreign_key(scope: DdlScope, table: CatalogObject, constraint: str, change: ConstraintSwitch) -> None:
    """PostgreSQL checks the rows when it enforces a key again; without WITH CHECK the key is made again unchecked."""
    target, name = qualified(table.postgres_schema, table.postgres_name), quote(constraint)
    if not change.enabled or change.validate:
        state = "ENFORCED" if change.enabled else "NOT ENFORCED"
        scope.run(f"ALTER TABLE {target} ALTER CONSTRAINT {name} {state}")
        # A key that was enforced for new rows only is no news to PostgreSQL.
        if change.enabled:
            scope.run(f"ALTER TABLE {target} VALIDATE CONSTRAINT {name}")
        return
    ((definition, referenced),) = scope.fetch(_KEY_SQL, [table.object_id, constraint])
    # PostgreSQL refuses a foreign key to an index that is checked at the end (ADR 30, "Consequences").
    scope.fetch("SELECT emulator.check_keys_at_once($1::oid)", [referenced])
    scope.run(f"ALTER TABLE {target} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} {definition} NOT VALID")
    scope.check_keys_at_end(table)


_KEY_SQL = """
SELECT regexp_replace(pg_get_constraintdef(c.oid), '( NOT ENFORCED)?( NOT VALID)?$', ''), c.confrelid::bigint
FROM pg_constraint c WHERE c.conrelid = $1::oid AND c.conname = $2
"""

_SWITCHED = """
SELECT o.name, o.type, o.postgres_name, coalesce(f.is_disabled, k.is_disabled) FROM emulator.objects o
LEFT JOIN emulator.foreign_keys f ON f.object_id = o.object_id
LEFT JOIN emulator.check_constraints k ON k.object_id = o.object_id
WHERE o.parent_object_id = $1::int AND o.type IN ('F', 'C') AND ($2 = '' OR lower(o.name) = lower($2))
"""


def _switch(scope: DdlScope, table: CatalogObject, change: ConstraintSwitch) -> None:
    """NOCHECK and CHECK CONSTRAINT."""
    for wanted in change.names or ("",):
        found = scope.fetch(_SWITCHED, [table.object_id, wanted])
        if wanted and not found:
            raise SqlServerError(4917, f"Constraint '{wanted}' does not exist.")
        for name, kind, postgres_name, is_disabled in found:
            # Without WITH CHECK nothing happens to a constraint that is enabled already.
            if change.enabled and not is_disabled and not change.validate:
                continue
            if kind == "C":
                _switch_check(scope, table, str(postgres_name), change)
                continue
            _switch_foreign_key(scope, table, str(postgres_name), change)
            scope.fetch(
                "UPDATE emulator.foreign_keys f SET is_disabled = $3::boolean, is_not_trusted = $4::boolean"
                " FROM emulator.objects o WHERE o.object_id = f.object_id AND f.parent_object_id = "
                "$1::int AND o.name = $2",
                [table.object_id, name, not change.enabled, not (change.enabled and change.validate)],
            )
