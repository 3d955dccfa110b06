"""PRIMARY KEY, UNIQUE, CHECK, FOREIGN KEY and DEFAULT constraints of a table that exists."""

from __future__ import annotations

from collections.abc import Sequence

from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.engine.ddl.reading.canonical import canonical
from sqlserver_emulator.engine.ddl.reading.declarations import (
    CheckDeclaration,
    Constraint,
    DefaultDeclaration,
    ForeignKeyDeclaration,
    IndexColumn,
    KeyDeclaration,
)
from sqlserver_emulator.engine.ddl.scope import DdlScope, SchemaEntry
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.ddl.tables.blank_keys import guard_key
from sqlserver_emulator.engine.names import postgres_name, qualified, quote
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import ConstraintError, SqlServerError

# Reasons why a constraint cannot be made behind which a server says that it was not.
_FOLLOWED = frozenset({1505, 1757, 1767, 1776, 1779, 8111})
_ACTION_NUMBERS = {"NO ACTION": 0, "CASCADE": 1, "SET NULL": 2, "SET DEFAULT": 3}
_KEY_OF_COLUMNS = """
SELECT i.index_id FROM emulator.indexes i
JOIN emulator.index_columns c ON c.object_id = i.object_id AND c.index_id = i.index_id AND c.key_ordinal > 0
WHERE i.object_id = $1::int AND i.is_unique GROUP BY i.index_id
HAVING array_agg(c.column_id ORDER BY c.column_id) = (SELECT array_agg(x::int ORDER BY x::int)
                                                      FROM unnest(string_to_array($2, ',')) x)
ORDER BY i.index_id LIMIT 1
"""
_PRIMARY_KEY = """
SELECT c.name FROM emulator.indexes i JOIN emulator.objects k ON k.object_id = i.constraint_object_id AND k.type = 'PK'
JOIN emulator.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN emulator.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
WHERE i.object_id = $1::int ORDER BY ic.key_ordinal
"""


def add_constraint(scope: DdlScope, home: SchemaEntry, table: CatalogObject, constraint: Constraint) -> None:
    """Add a key, CHECK or FOREIGN KEY constraint to a table that exists. Raises ConstraintError."""
    try:
        if isinstance(constraint, KeyDeclaration):
            _add_key(scope, home, table, constraint)
        elif isinstance(constraint, CheckDeclaration):
            _add_check(scope, home, table, constraint)
        else:
            _add_foreign_key(scope, home, table, constraint)
    except SqlServerError as error:
        if error.number in _FOLLOWED:
            raise ConstraintError(error) from error
        raise


def _alter(scope: DdlScope, table: CatalogObject, clause: str) -> None:
    scope.run(f"ALTER TABLE {qualified(table.postgres_schema, table.postgres_name)} {clause}")


def generated_name(prefix: str, table: CatalogObject, unique: int, column: str = "") -> str:
    """A name in SQL Server's style: PK__Orders__3213E83F…"""
    middle = f"{table.name[:9]}__{column[:5]}" if column else table.name[:9]
    return (
        # 2654435761 is the multiplier of Knuth's hash: the digits seem random, and the number makes them unique.
        f"{prefix}__{middle}__{unique * 2654435761 % 2**64:016X}"
        if prefix in ("PK", "UQ")
        else (f"{prefix}__{middle}__{unique * 2654435761 % 2**32:08X}")
    )


def _next_id(scope: DdlScope) -> int:
    return int(scope.fetch("SELECT nextval('emulator.object_ids')")[0][0])


def _add_key(scope: DdlScope, home: SchemaEntry, table: CatalogObject, key: KeyDeclaration) -> None:
    columns = tuple(IndexColumn(rows.column_of(table, c.name).name, c.descending) for c in key.columns)
    if key.primary:
        _check_single_primary_key(scope, table)
        hooks.before_add_primary_key(scope, table)
        _require_not_null(table, columns)
    object_id = _next_id(scope)
    type_ = "PK" if key.primary else "UQ"
    name = key.name or generated_name(type_, table, object_id)
    keyed = [rows.column_of(table, c.name) for c in columns]
    # NULL is a value like any other for T-SQL's UNIQUE.
    what = "PRIMARY KEY" if key.primary else "UNIQUE NULLS NOT DISTINCT"
    listed = ", ".join(quote(column.postgres_name) for column in keyed)
    target = qualified(table.postgres_schema, table.postgres_name)
    added = f"ADD CONSTRAINT {quote(postgres_name(name))} {what} ({listed})"
    scope.build_key(f"ALTER TABLE {target} {added}", table, name)
    # SQL Server takes 'abc' and 'abc ' for one key (``blank_keys``).
    guard_key(scope, table, name, postgres_name(name), keyed, condition="")
    # ADR 30: from here on the key is checked at the end of each statement.
    scope.check_keys_at_end(table)
    # Temp tables and table variables are in no catalog table.
    if table.name.startswith(("#", "@")):
        return
    rows.insert_object(
        scope, home, name, type_, object_id=object_id, parent=table.object_id, postgres_name=postgres_name(name)
    )
    # A primary key is clustered unless another index is already, or the statement says otherwise.
    clustered = key.clustered if key.clustered is not None else key.primary and not _has_clustered(scope, table)
    rows.insert_index(
        scope,
        table,
        name,
        postgres_name(name),
        columns,
        clustered=clustered,
        unique=True,
        constraint_object_id=object_id,
        system_named=not key.name,
    )


def _check_single_primary_key(scope: DdlScope, table: CatalogObject) -> None:
    if scope.fetch(_PRIMARY_KEY, [table.object_id]):
        message = f"Table '{table.name}' already has a primary key defined on it."
        raise SqlServerError(1779, message, state=0)


def _require_not_null(table: CatalogObject, columns: Sequence[IndexColumn]) -> None:
    if any(rows.column_of(table, c.name).nullable for c in columns):
        raise SqlServerError(8111, f"Cannot define PRIMARY KEY constraint on nullable column in table '{table.name}'.")


def _has_clustered(scope: DdlScope, table: CatalogObject) -> bool:
    return bool(
        scope.fetch("SELECT 1 FROM emulator.indexes WHERE object_id = $1::int AND index_id = 1", [table.object_id])
    )


def _add_check(scope: DdlScope, home: SchemaEntry, table: CatalogObject, check: CheckDeclaration) -> None:
    object_id = _next_id(scope)
    name = check.name or generated_name("CK", table, object_id, check.column)
    _alter(
        scope,
        table,
        f"ADD CONSTRAINT {quote(postgres_name(name))} CHECK ({scope.condition(check.condition, table)})"
        f"{'' if check.validate else ' NOT VALID'}",
    )
    if table.name.startswith(("#", "@")):
        return
    rows.insert_object(
        scope, home, name, "C", object_id=object_id, parent=table.object_id, postgres_name=postgres_name(name)
    )
    column_id = rows.column_of(table, check.column).column_id if check.column else 0
    scope.fetch(
        "INSERT INTO emulator.check_constraints"
        " VALUES ($1::int, $2::int, $3::int, $4, $5::boolean, false, $6::boolean)",
        [object_id, table.object_id, column_id, canonical(check.condition), not check.name, not check.validate],
    )


def _add_foreign_key(scope: DdlScope, home: SchemaEntry, table: CatalogObject, key: ForeignKeyDeclaration) -> None:
    if table.name.startswith(("#", "@")):
        return  # SQL Server skips foreign keys of temp tables, with a message
    target = scope.table(key.references)
    if target is None:
        message = f"Foreign key '{key.name}' references invalid table '{key.references}'."
        raise SqlServerError(1767, message, state=0)
    referenced = key.referenced_columns or tuple(str(r[0]) for r in scope.fetch(_PRIMARY_KEY, [target.object_id]))
    index_id = _referenced_key(scope, target, referenced, key.name)
    object_id = _next_id(scope)
    name = key.name or generated_name("FK", table, object_id, key.columns[0])
    own = ", ".join(quote(rows.column_of(table, c).postgres_name) for c in key.columns)
    other = ", ".join(quote(rows.column_of(target, c).postgres_name) for c in referenced)
    _require_same_collations(table, key, target, referenced)
    strings = any(rows.column_of(table, c).collation is not None for c in key.columns)
    clause = (
        f"ADD CONSTRAINT {quote(postgres_name(name))} FOREIGN KEY ({own})"
        f" REFERENCES {qualified(target.postgres_schema, target.postgres_name)} ({other})"
        f" ON DELETE {key.on_delete} ON UPDATE {key.on_update}{'' if key.validate and not strings else ' NOT VALID'}"
    )
    # PostgreSQL refuses a foreign key to an index that is checked at the end (ADR 30, "Consequences").
    scope.fetch("SELECT emulator.check_keys_at_once($1::oid)", [target.object_id])
    _alter(scope, table, clause)
    if strings:
        scope.fetch("SELECT emulator.compare_keys_by_collation($1::oid)", [table.object_id])
        if key.validate:
            _alter(scope, table, f"VALIDATE CONSTRAINT {quote(postgres_name(name))}")
    # Of both tables: ``check_keys_at_end`` includes the keys that the table's foreign keys refer to.
    scope.check_keys_at_end(table)
    rows.insert_object(
        scope, home, name, "F", object_id=object_id, parent=table.object_id, postgres_name=postgres_name(name)
    )
    scope.fetch(
        "INSERT INTO emulator.foreign_keys (object_id, parent_object_id, referenced_object_id, "
        "key_index_id, delete_action,"
        " update_action, is_system_named, is_not_trusted)"
        " VALUES ($1::int, $2::int, $3::int, $4::int, $5::int, $6::int, $7::boolean, $8::boolean)",
        [
            object_id,
            table.object_id,
            target.object_id,
            index_id,
            _ACTION_NUMBERS[key.on_delete],
            _ACTION_NUMBERS[key.on_update],
            not key.name,
            not key.validate,
        ],
    )
    for ordinal, (column, to) in enumerate(zip(key.columns, referenced, strict=True), 1):
        scope.fetch(
            "INSERT INTO emulator.foreign_key_columns VALUES ($1::int, $2::int, $3::int, $4::int)",
            [object_id, ordinal, rows.column_of(table, column).column_id, rows.column_of(target, to).column_id],
        )


def _require_same_collations(
    table: CatalogObject, key: ForeignKeyDeclaration, target: CatalogObject, referenced: Sequence[str]
) -> None:
    """Raise 1757 where strings would be compared by two collations."""
    for own, other in zip(key.columns, referenced, strict=True):
        left, right = rows.column_of(table, own), rows.column_of(target, other)
        if left.collation is not None and right.collation is not None and left.collation != right.collation:
            raise SqlServerError(
                1757,
                f"Column '{target.name}.{right.name}' is not of same collation as referencing column"
                f" '{table.name}.{left.name}' in foreign key '{key.name}'.",
                state=0,
            )


def _referenced_key(scope: DdlScope, target: CatalogObject, columns: Sequence[str], name: str) -> int:
    ids = ",".join(str(rows.column_of(target, c).column_id) for c in columns)
    # The columns of a key may be referred to in any order.
    found = scope.fetch(_KEY_OF_COLUMNS, [target.object_id, ids])
    if not found:
        raise SqlServerError(
            1776,
            "There are no primary or candidate keys in the referenced table "
            f"'{target.schema}.{target.name}' that match "
            f"the referencing column list in the foreign key '{name}'.",
            state=0,
        )
    return int(found[0][0])


def add_default(
    scope: DdlScope, home: SchemaEntry, table: CatalogObject, default: DefaultDeclaration, *, set_in_postgres: bool
) -> None:
    """Add a DEFAULT constraint. Raises 1781."""
    column = rows.column_of(table, default.column)
    if set_in_postgres:
        sql = scope.scalar(default.expression, column.type)
        _alter(scope, table, f"ALTER COLUMN {quote(column.postgres_name)} SET DEFAULT {sql}")
    # Temp tables have the default in PostgreSQL only.
    if table.name.startswith(("#", "@")):
        return
    taken = scope.fetch(
        "SELECT default_object_id FROM emulator.columns WHERE object_id = $1::int AND column_id = $2::int"
        " AND default_object_id <> 0",
        [table.object_id, column.column_id],
    )
    if taken:
        raise SqlServerError(1781, "Column already has a DEFAULT bound to it.")
    object_id = _next_id(scope)
    name = default.name or generated_name("DF", table, object_id, column.name)
    rows.insert_object(scope, home, name, "D", object_id=object_id, parent=table.object_id)
    definition = canonical(default.expression)
    scope.fetch(
        "INSERT INTO emulator.default_constraints VALUES ($1::int, $2::int, $3::int, $4, $5::boolean)",
        [object_id, table.object_id, column.column_id, definition, not default.name],
    )
    scope.fetch(
        "UPDATE emulator.columns SET default_object_id = $1::int WHERE object_id = $2::int AND column_id = $3::int",
        [object_id, table.object_id, column.column_id],
    )
