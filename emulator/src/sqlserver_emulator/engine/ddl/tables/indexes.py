"""CREATE INDEX and DROP INDEX."""

from __future__ import annotations

from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.engine.ddl.compared import compared_sql
from sqlserver_emulator.engine.ddl.reading.canonical import canonical
from sqlserver_emulator.engine.ddl.reading.declarations import IndexColumn, IndexDeclaration, ObjectName
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.ddl.tables.blank_keys import drop_guard, guard_key
from sqlserver_emulator.engine.names import index_name, qualified, quote
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

_INDEX = """
SELECT index_id, postgres_name, constraint_object_id, name FROM emulator.indexes
WHERE object_id = $1::int AND lower(name) = lower($2)
"""


def create_index(scope: DdlScope, table: CatalogObject, index: IndexDeclaration) -> None:
    """Raises 1913 when the table has an index of that name."""
    if table.kind == "V":
        raise NotSupportedByEmulatorError("an index on a view (indexed views)")
    temporary = table.name.startswith(("#", "@"))
    if not temporary and (existing := scope.fetch(_INDEX, [table.object_id, index.name])):
        if not index.drop_existing:
            raise SqlServerError(
                1913,
                "The operation failed because an index or statistics with name "
                f"'{index.name}' already exists on table '{table.schema}.{table.name}'.",
            )
        # DROP_EXISTING: the old index goes first, because PostgreSQL's name is the same.
        _drop(scope, table, existing[0][3], existing[0][1], existing[0][0])
    columns = tuple(IndexColumn(rows.column_of(table, c.name).name, c.descending) for c in index.columns)
    name = index_name(table.object_id, index.name)
    condition = scope.condition(index.filter, table) if index.filter else ""
    scope.build_key(_create_sql(table, index, name, condition), table, index.name)
    if index.unique:
        guard_key(scope, table, index.name, name, [rows.column_of(table, c.name) for c in columns], condition=condition)
        scope.check_keys_at_end(table)
    if not temporary:
        rows.insert_index(
            scope,
            table,
            index.name,
            name,
            columns,
            included=index.included,
            clustered=index.clustered,
            unique=index.unique,
            filter_definition=canonical(index.filter, keeps_lists=True) if index.filter else None,
        )


def _create_sql(table: CatalogObject, index: IndexDeclaration, name: str, condition: str) -> str:
    keys = ", ".join(
        _key(rows.column_of(table, c.name), unique=index.unique) + (" DESC" if c.descending else "")
        for c in index.columns
    )
    included = ", ".join(quote(rows.column_of(table, c).postgres_name) for c in index.included)
    parts = [
        f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {quote(name)}",
        f"ON {qualified(table.postgres_schema, table.postgres_name)} ({keys})",
    ]
    if included:
        parts.append(f"INCLUDE ({included})")
    if index.unique:
        # For T-SQL's unique index NULL is a value like any other.
        parts.append("NULLS NOT DISTINCT")
    if condition:
        parts.append(f"WHERE {condition}")
    return " ".join(parts)


def _key(column: CatalogColumn, *, unique: bool) -> str:
    """A string is found by the key of its collation; a unique index has a second one for that (``blank_keys``)."""
    if unique or column.collation is None or column.collation.is_binary:
        return quote(column.postgres_name)
    return compared_sql(column)


def drop_index(scope: DdlScope, table_name: ObjectName, name: str, *, if_exists: bool) -> None:
    """Raises 3701 when there is none, 3723 for the index of a constraint."""
    table = scope.table(table_name)
    found = scope.fetch(_INDEX, [table.object_id, name]) if table else []
    if table is None or not found:
        if if_exists:
            return
        message = (
            f"Cannot drop the index '{table_name}.{name}', because it does not exist or you do not have permission."
        )
        raise SqlServerError(3701, message, severity=11, state=7)
    index_id, postgres_name, constraint, real_name = found[0]
    if constraint is not None:
        message = f"An explicit DROP INDEX is not allowed on index '{table_name}.{name}'."
        raise SqlServerError(
            3723, f"{message} It is being used for PRIMARY KEY or UNIQUE KEY constraint enforcement.", state=4
        )
    # Change data capture needs the index by which a tracked table's rows are identified.
    hooks.before_drop_index(scope, table, real_name, constraint=False)
    _drop(scope, table, real_name, postgres_name, index_id)


def before_disabling(scope: DdlScope, table_name: ObjectName, name: str) -> None:
    """Raise the error of change data capture for ALTER INDEX … DISABLE, if it has one."""
    table = scope.table(table_name)
    found = scope.fetch(_INDEX, [table.object_id, name]) if table else []
    if table is not None and found:
        hooks.before_drop_index(scope, table, found[0][3], constraint=found[0][2] is not None)


def _drop(scope: DdlScope, table: CatalogObject, name: str, postgres_name: str, index_id: int) -> None:
    drop_guard(scope, table, postgres_name)
    scope.run(f"DROP INDEX {qualified(table.postgres_schema, postgres_name)}")
    scope.fetch(
        "DELETE FROM emulator.indexes WHERE object_id = $1::int AND index_id = $2::int", [table.object_id, index_id]
    )
