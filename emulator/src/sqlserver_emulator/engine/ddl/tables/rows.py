"""The rows that DDL leaves in the emulator's catalog. Tables and views are numbered by their PostgreSQL oid."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlserver_emulator.engine.ddl.reading.canonical import canonical
from sqlserver_emulator.engine.ddl.reading.declarations import IndexColumn
from sqlserver_emulator.engine.ddl.scope import DdlScope, SchemaEntry
from sqlserver_emulator.engine.ddl.tables.table_sql import PlannedColumn
from sqlserver_emulator.engine.names import quote_literal
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import SqlServerError

# attnum is read from PostgreSQL: it is not always the column id.
_INSERT_COLUMNS = """
INSERT INTO emulator.columns (object_id, column_id, name, postgres_name, attnum, type_name, length, precision, scale,
    user_type_id, is_nullable, identity_seed, identity_increment, computed_definition, is_persisted, is_rowguidcol,
    masking_function, collation_name)
SELECT $1::int, c.column_id, c.name, c.postgres_name, a.attnum, c.type_name, c.length, c.precision, c.scale,
    c.user_type_id, c.is_nullable, c.identity_seed, c.identity_increment, c.computed_definition, c.is_persisted,
    c.is_rowguidcol, nullif(c.masking_function, ''), c.collation_name
FROM jsonb_to_recordset($2::jsonb) AS c (column_id int, name text, postgres_name text, type_name text, length int,
    precision int, scale int, user_type_id int, is_nullable boolean, identity_seed numeric, identity_increment numeric,
    computed_definition text, is_persisted boolean, is_rowguidcol boolean, masking_function text, collation_name text)
JOIN pg_attribute a ON a.attrelid = $1::oid AND a.attname = c.postgres_name AND NOT a.attisdropped
"""
_INSERT_OBJECT = """
INSERT INTO emulator.objects (object_id, database_id, schema_id, name, type, parent_object_id, postgres_name,
    definition)
VALUES (coalesce($1::int, nextval('emulator.object_ids')::int), $2::int, $3::int, $4, $5, $6::int, $7, $8)
RETURNING object_id
"""


def insert_object(
    scope: DdlScope,
    home: SchemaEntry,
    name: str,
    type_: str,
    *,
    object_id: int | None = None,
    parent: int = 0,
    postgres_name: str = "",
    definition: str | None = None,
) -> int:
    """Raises 2714 when the name is taken in its schema."""
    taken = scope.fetch(
        "SELECT 1 FROM emulator.objects WHERE database_id = $1::int AND schema_id = $2::int AND "
        "lower(name) = lower($3)",
        [home.database_id, home.schema_id, name],
    )
    if taken:
        raise SqlServerError(2714, f"There is already an object named '{name}' in the database.", state=6)
    row = [object_id, home.database_id, home.schema_id, name, type_, parent, postgres_name, definition]
    return int(scope.fetch(_INSERT_OBJECT, row)[0][0])


def insert_columns(scope: DdlScope, object_id: int, columns: Sequence[PlannedColumn]) -> None:
    """Insert the catalog rows of planned columns."""
    rows = [
        {
            **column_row(planned.column),
            "user_type_id": planned.declaration.alias_type_id,
            "identity_seed": planned.declaration.identity[0] if planned.declaration.identity else None,
            "identity_increment": planned.declaration.identity[1] if planned.declaration.identity else None,
            "computed_definition": canonical(planned.declaration.computed) if planned.declaration.computed else None,
            "is_persisted": planned.declaration.persisted,
            "is_rowguidcol": planned.declaration.rowguidcol,
            "masking_function": planned.declaration.mask,
        }
        for planned in columns
    ]
    scope.fetch(_INSERT_COLUMNS, [object_id, json.dumps(rows)])


def insert_view_columns(scope: DdlScope, object_id: int, columns: Sequence[CatalogColumn]) -> None:
    """Insert the catalog rows of a view's columns."""
    rows = [{**column_row(column), "is_persisted": False, "is_rowguidcol": False} for column in columns]
    scope.fetch(_INSERT_COLUMNS, [object_id, json.dumps(rows)])


def column_row(column: CatalogColumn) -> dict[str, object]:
    """Return the part of a column's catalog row that tables and views share."""
    return {
        "column_id": column.column_id,
        "name": column.name,
        "postgres_name": column.postgres_name,
        "type_name": column.type.name,
        "length": column.type.length,
        "precision": column.type.precision,
        "scale": column.type.scale,
        "is_nullable": column.nullable,
        "collation_name": column.collation.name if column.collation is not None else None,
    }


def insert_index(
    scope: DdlScope,
    table: CatalogObject,
    name: str,
    postgres_name: str,
    columns: Sequence[IndexColumn],
    *,
    included: Sequence[str] = (),
    clustered: bool = False,
    unique: bool = False,
    constraint_object_id: int | None = None,
    system_named: bool = False,
    filter_definition: str | None = None,
) -> int:
    """Insert the catalog rows of an index and its columns, and return its number."""
    # 1 is the clustered index, as in sys.indexes.
    index_id = 1 if clustered else _next_index_id(scope, table)
    scope.fetch(
        "INSERT INTO emulator.indexes VALUES ($1::int, $2::int, $3, $4, $5::boolean, $6::boolean, "
        "$7::int, $8::boolean, $9)",
        [
            table.object_id,
            index_id,
            name,
            postgres_name,
            clustered,
            unique,
            constraint_object_id,
            system_named,
            filter_definition,
        ],
    )
    names = [(c.name, i, c.descending, False) for i, c in enumerate(columns, 1)]
    # Included columns have key ordinal 0.
    names += [(c, 0, False, True) for c in included]
    for position, (column, ordinal, descending, is_included) in enumerate(names, 1):
        scope.fetch(
            "INSERT INTO emulator.index_columns VALUES ($1::int, $2::int, $3::int, $4::int, $5::int, "
            "$6::boolean, $7::boolean)",
            [table.object_id, index_id, position, column_of(table, column).column_id, ordinal, descending, is_included],
        )
    return index_id


def _next_index_id(scope: DdlScope, table: CatalogObject) -> int:
    # 0 is the heap and 1 the clustered index, so others begin at 2.
    sql = "SELECT greatest(coalesce(max(index_id), 0) + 1, 2) FROM emulator.indexes WHERE object_id = $1::int"
    return int(scope.fetch(sql, [table.object_id])[0][0])


def column_of(table: CatalogObject, name: str) -> CatalogColumn:
    """Raises 1911 when the table has no such column."""
    by_name = {c.name: c for c in table.columns}
    found = by_name.get(name) or next((c for c in table.columns if c.name.lower() == name.lower()), None)
    if found is None:
        message = f"Column name '{name}' does not exist in the target table or view."
        raise SqlServerError(1911, message)
    return found


def object_id_of(scope: DdlScope, qualified_name: str) -> int:
    """Return the OID of a PostgreSQL relation."""
    return int(scope.fetch(f"SELECT {quote_literal(qualified_name)}::regclass::oid")[0][0])


def touch(scope: DdlScope, object_id: int) -> None:
    """The table was altered now."""
    scope.fetch("UPDATE emulator.objects SET modify_date = emulator.now() WHERE object_id = $1::int", [object_id])
