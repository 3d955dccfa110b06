"""Names that the Spark writer, the merge and the checks must agree on: Floodmark's columns and its staging tables."""

from __future__ import annotations

import hashlib

from floodmark.core.schema import SourceTable, TableName
from floodmark.core.window import LoadKind, WindowPlan

LEDGER_SCHEMA = "floodmark"
STAGING_SCHEMA = "floodmark_staging"

LSN_COLUMN = "__lsn"
OPERATION_COLUMN = "__op"
WINDOW_COLUMN = "__window_id"
LOADED_AT_COLUMN = "__loaded_at"
DELETED_COLUMN = "__deleted"
PART_COLUMN = "__part"
"""Of staging only: the Spark partition that wrote the row."""

TARGET_COLUMNS = (LSN_COLUMN, OPERATION_COLUMN, WINDOW_COLUMN, LOADED_AT_COLUMN, DELETED_COLUMN)
IDENTIFIER_MAX_BYTES = 63
KEEP_PREFIX = "__keep_"
"""Of staging only: see ``keep_column``."""


def staging_table(plan: WindowPlan, index: int) -> TableName:
    """Where table ``index`` of the plan is staged. Changes have tables of their own in each attempt: a load that was
    believed dead cannot write into those of its successor. The chunks of a first load outlast the attempts, and are
    fenced one by one; the name does not depend on which tables stand beside it in the plan."""
    prefix = staging_prefix(plan.window_id)
    table = plan.tables[index]
    if table.kind is LoadKind.FIRST_LOAD:
        return TableName(STAGING_SCHEMA, f"{prefix}load_{hashlib.sha256(str(table.source).encode()).hexdigest()[:16]}")
    return TableName(STAGING_SCHEMA, f"{prefix}{plan.attempt}_{index}")


def staging_prefix(window_id: int) -> str:
    """What the names of all staging tables of a window begin with."""
    return f"w{window_id}_"


def keep_column(column: str) -> str:
    """The staging column that is true where the change row left the LOB out and the target's value stays."""
    name = KEEP_PREFIX + column
    if len(name.encode()) <= IDENTIFIER_MAX_BYTES:
        return name
    return KEEP_PREFIX + hashlib.sha256(column.encode()).hexdigest()[:32]


def lob_columns(table: SourceTable) -> tuple[str, ...]:
    """The stored columns that have a keep column in staging, in order."""
    return tuple(column.name for column in table.stored_columns if column.is_lob)


def quote(identifier: str) -> str:
    """As a quoted identifier of standard SQL (PostgreSQL's, never T-SQL's brackets)."""
    return '"' + identifier.replace('"', '""') + '"'


def quote_table(name: TableName) -> str:
    return f"{quote(name.schema)}.{quote(name.name)}"
