"""Names that the Spark writer, the merge and the checks share: Floodmark's columns and its staging tables."""

from __future__ import annotations

import hashlib

from floodmark.core.schema import SourceTable, TableName

LEDGER_SCHEMA = "floodmark"
STAGING_SCHEMA = "floodmark_staging"

LSN_COLUMN = "__lsn"
OPERATION_COLUMN = "__op"
WINDOW_COLUMN = "__window_id"
LOADED_AT_COLUMN = "__loaded_at"
DELETED_COLUMN = "__deleted"
PART_COLUMN = "__part"
"""A column of staging only: the Spark partition that wrote the row."""

UNSTORABLE_COLUMN = "__unstorable"
"""A column of staging only: a JSON object with the reason for each column whose text the warehouse cannot store."""

TARGET_COLUMNS = (LSN_COLUMN, OPERATION_COLUMN, WINDOW_COLUMN, LOADED_AT_COLUMN, DELETED_COLUMN)
IDENTIFIER_MAX_BYTES = 63
KEEP_PREFIX = "__keep_"
"""A prefix of columns of staging only: see ``keep_column``."""


def keep_column(column: str) -> str:
    """Return the staging column that is true where the change row omits a value and that of the target stays."""
    name = KEEP_PREFIX + column
    if len(name.encode()) <= IDENTIFIER_MAX_BYTES:
        return name
    return KEEP_PREFIX + hashlib.sha256(column.encode()).hexdigest()[:32]


def optional_columns(table: SourceTable) -> tuple[str, ...]:
    """Return the stored columns that have a keep column in staging, in order."""
    return tuple(column.name for column in table.stored_columns if table.may_leave_out(column))


def quote(identifier: str) -> str:
    """Return a quoted identifier of standard SQL (PostgreSQL's, never T-SQL's brackets)."""
    return '"' + identifier.replace('"', '""') + '"'


def quote_table(name: TableName) -> str:
    """Return the quoted two-part name."""
    return f"{quote(name.schema)}.{quote(name.name)}"
