"""Masks of columns: checked and kept in the catalog. What readers see is the translator's."""

from __future__ import annotations

from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables.alter_column import COMPUTED_FROM
from sqlserver_emulator.engine.masks import parse_mask
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

_SET = """
UPDATE emulator.columns SET masking_function = nullif($3::text, '')::varchar
WHERE object_id = $1::int AND column_id = $2::int
"""


def check_mask(column: CatalogColumn, function: str) -> None:
    """Do nothing for ''. Raises 16003 for a type that the function cannot mask, 49999 for an unknown function."""
    if function and column.computed:
        raise NotSupportedByEmulatorError("masks on computed columns")
    if function:
        parse_mask(function, column.name, column.type)


def set_mask(scope: DdlScope, table: CatalogObject, name: str, function: str) -> None:
    """Set or, with '', remove the mask of a column. Raises 4924 where there is no such column."""
    column = next((c for c in table.columns if c.name.lower() == name.lower()), None)
    if column is None:
        message = f"ALTER TABLE ALTER COLUMN failed because column '{name}' does not exist in table '{table.name}'."
        raise SqlServerError(4924, message)
    check_mask(column, function)
    if function and scope.fetch(COMPUTED_FROM, [table.object_id, column.column_id]):
        raise NotSupportedByEmulatorError("masks on columns that computed columns are made from")
    scope.fetch(_SET, [table.object_id, column.column_id, function])
