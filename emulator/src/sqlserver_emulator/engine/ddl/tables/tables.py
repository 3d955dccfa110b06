"""CREATE TABLE, DROP TABLE, TRUNCATE TABLE, for tables, #temp tables and table variables."""

from __future__ import annotations

from sqlserver_emulator.engine.access.table_variables import variable_name
from sqlserver_emulator.engine.catalog.cache import Relation
from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.engine.ddl.filegroups import check_data_spaces
from sqlserver_emulator.engine.ddl.reading.declarations import (
    ForeignKeyDeclaration,
    KeyDeclaration,
    ObjectName,
    TableDeclaration,
)
from sqlserver_emulator.engine.ddl.scope import TEMPORARY, DdlScope, SchemaEntry
from sqlserver_emulator.engine.ddl.tables import log, rows
from sqlserver_emulator.engine.ddl.tables.constraints import add_constraint, add_default
from sqlserver_emulator.engine.ddl.tables.counters import attach_counters, create_counters
from sqlserver_emulator.engine.ddl.tables.filters import refuse_bound
from sqlserver_emulator.engine.ddl.tables.indexes import create_index
from sqlserver_emulator.engine.ddl.tables.masking import check_mask
from sqlserver_emulator.engine.ddl.tables.table_sql import PlannedColumn, plan_columns, with_columns
from sqlserver_emulator.engine.ddl.tracking import tables as tracking
from sqlserver_emulator.engine.names import postgres_name, qualified, quote, quote_literal
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

_REFERENCED_BY = """
SELECT o.name FROM emulator.foreign_keys f JOIN emulator.objects o ON o.object_id = f.object_id
WHERE f.referenced_object_id = $1::int AND f.parent_object_id <> $1::int LIMIT 1
"""
_TEMPORARY_HOME = SchemaEntry(0, "dbo", TEMPORARY, 0, "tempdb")


def create_table(scope: DdlScope, declaration: TableDeclaration) -> None:
    """Create a table, temp table or table variable. Raises 1921 and 2714."""
    name = declaration.name
    if name.is_temporary and scope.table(name) is not None:
        raise SqlServerError(2714, f"There is already an object named '{name.name}' in the database.", state=6)
    home = _TEMPORARY_HOME if name.is_temporary else scope.schema(name)
    if not name.is_temporary:
        check_data_spaces(scope, home.database, declaration.data_spaces)
    is_variable = name.name.startswith("@")
    depth = scope.access.catalog.scope_depth
    # The name contains depth and declaration, so that the table can be used again (``access.table_variables``).
    own_name = variable_name(name.name, depth, scope.statement) if is_variable else postgres_name(name.name)
    empty = CatalogObject(0, home.database, home.name, name.name, "U", home.postgres_name, own_name, ())
    keys = [c for c in declaration.constraints if isinstance(c, KeyDeclaration)]
    planned = plan_columns(scope, empty, declaration.columns, keys)
    for item in planned:
        check_mask(item.column, item.declaration.mask)
        if item.declaration.mask and name.is_temporary:
            raise NotSupportedByEmulatorError("masks on columns of temporary tables")
    # Without keys: constraints follow, because their names and numbers come from the catalog.
    object_id = _create_in_postgres(scope, home, empty, planned)
    key = next((tuple(c.name for c in k.columns) for k in keys if k.primary), ())
    table = with_columns(empty, [p.column for p in planned], key)
    table = _numbered(table, object_id)
    if name.is_temporary:
        # Statements run as the login's role, but the emulator's owner creates the table.
        scope.run(f"GRANT ALL ON {qualified(home.postgres_name, table.postgres_name)} TO PUBLIC")
    else:
        rows.insert_object(scope, home, name.name, "U", object_id=object_id, postgres_name=table.postgres_name)
        rows.insert_columns(scope, object_id, planned)
    _add_rest(scope, home, table, declaration, planned)
    if name.is_temporary:
        _remember_temporary(scope, table)
        scope.changes_catalog = False


def _create_in_postgres(scope: DdlScope, home: SchemaEntry, table: CatalogObject, planned: list[PlannedColumn]) -> int:
    target = qualified(home.postgres_name, table.postgres_name)
    if scope.fetch("SELECT 1 WHERE to_regclass($1) IS NOT NULL", [target]):
        raise SqlServerError(2714, f"There is already an object named '{table.name}' in the database.", state=6)
    is_temporary = home.postgres_name == TEMPORARY
    create_counters(scope, planned, is_temporary=is_temporary)
    kind = "TEMPORARY TABLE" if is_temporary else "TABLE"
    scope.run(f"CREATE {kind} {target} ({', '.join(p.sql for p in planned)})")
    attach_counters(scope, planned, target)
    return rows.object_id_of(scope, target)


def _numbered(table: CatalogObject, object_id: int) -> CatalogObject:
    return CatalogObject(
        object_id,
        table.database,
        table.schema,
        table.name,
        table.kind,
        table.postgres_schema,
        table.postgres_name,
        table.columns,
        table.key_columns,
    )


def _add_rest(
    scope: DdlScope,
    home: SchemaEntry,
    table: CatalogObject,
    declaration: TableDeclaration,
    planned: list[PlannedColumn],
) -> None:
    """Constraints and indexes; keys first, so that a foreign key to the table itself finds them."""
    for item in planned:
        if item.declaration.default is not None:
            add_default(scope, home, table, item.declaration.default, set_in_postgres=False)
        if item.column.type.name == "rowversion":
            stamp_rowversion(scope, table, item.column.postgres_name)
    for constraint in sorted(declaration.constraints, key=_order):
        if isinstance(constraint, ForeignKeyDeclaration) and not table.name.startswith(("#", "@")):
            scope.access.catalog_changed()  # the key may refer to this very table
        add_constraint(scope, home, table, constraint)
    for index in declaration.indexes:
        create_index(scope, table, index)


def _order(constraint: object) -> int:
    """Clustered and primary keys first: they take index 1."""
    if not isinstance(constraint, KeyDeclaration):
        return 3
    return 0 if constraint.clustered else 1 if constraint.primary else 2


def _remember_temporary(scope: DdlScope, table: CatalogObject) -> None:
    # Result columns are traced by attribute number; a temp table has no rows in the catalog that would say it.
    attributes = scope.fetch(
        "SELECT attname, attnum FROM pg_attribute WHERE attrelid = $1::oid AND attnum > 0", [table.object_id]
    )
    numbers = {str(name): int(number) for name, number in attributes}
    scope.access.catalog.add_temporary(Relation(table, {numbers[c.postgres_name]: c for c in table.columns}))


def stamp_rowversion(scope: DdlScope, table: CatalogObject, column: str) -> None:
    """rowversion: the trigger writes the database's next value whenever a row is written."""
    database = table.database
    sequence = str(scope.fetch("SELECT rowversion_sequence FROM emulator.databases WHERE name = $1", [database])[0][0])
    function = qualified("emulator", postgres_name(f"{table.object_id}.rowversion"))
    target = qualified(table.postgres_schema, table.postgres_name)
    body = f"BEGIN NEW.{quote(column)} := int8send(nextval({quote_literal(sequence)})); RETURN NEW; END"
    # SECURITY DEFINER: a role that may write the table need not have rights on the sequence.
    scope.run(
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS {quote_literal(body)}"
    )
    scope.run(
        f'CREATE TRIGGER "rowversion" BEFORE INSERT OR UPDATE ON {target} FOR EACH ROW EXECUTE FUNCTION {function}()'
    )


def drop_table(scope: DdlScope, name: ObjectName, *, if_exists: bool) -> None:
    """Drop a table. Raises 3701 and 3726."""
    table = scope.table(name)
    if table is None or table.kind != "U":
        # IF EXISTS does not cover a name that is something else than a table.
        if if_exists and table is None:
            return
        message = f"Cannot drop the table '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(3701, message, severity=11, state=5)
    if name.is_temporary:
        scope.run(f"DROP TABLE {qualified(table.postgres_schema, table.postgres_name)}")
        scope.access.catalog.drop_temporary(table.name)
        return
    if scope.fetch(_REFERENCED_BY, [table.object_id]):
        message = f"Could not drop object '{name}' because it is referenced by a FOREIGN KEY constraint."
        raise SqlServerError(3726, message)
    refuse_bound(scope, table.object_id, name)
    hooks.before_drop_table(scope, table)
    tracking.forget(scope, table)
    # Logged before the drop, while the catalog still has the table.
    log.table_changed(scope, table, "drop_table")
    scope.run(f"DROP TABLE {qualified(table.postgres_schema, table.postgres_name)}")
    # The keys that its foreign keys referred to may be checked at the end again.
    scope.fetch("SELECT emulator.free_referenced_keys($1::int)", [table.object_id])
    function = qualified("emulator", postgres_name(f"{table.object_id}.rowversion"))
    scope.run(f"DROP FUNCTION IF EXISTS {function}()")
    # Constraints and triggers have rows of their own.
    scope.fetch("DELETE FROM emulator.objects WHERE parent_object_id = $1::int", [table.object_id])
    scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [table.object_id])


def truncate_table(scope: DdlScope, name: ObjectName) -> None:
    """Also restarts the identity, as in T-SQL. Raises 4701, 4711 and 23663 (watched), 4712 (referenced)."""
    table = scope.table(name)
    if table is None:
        message = f'Cannot find the object "{name}" because it does not exist or you do not have permissions.'
        raise SqlServerError(4701, message)
    hooks.before_truncate(scope, table)
    if scope.fetch(_REFERENCED_BY, [table.object_id]):
        message = f"Cannot truncate table '{name}' because it is being referenced by a FOREIGN KEY constraint."
        raise SqlServerError(4712, message)
    scope.run(f"TRUNCATE {qualified(table.postgres_schema, table.postgres_name)} RESTART IDENTITY")
    tracking.restart(scope, table)
